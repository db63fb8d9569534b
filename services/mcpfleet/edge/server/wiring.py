"""The parts of an edge, each made once and given what it needs."""

from __future__ import annotations

from typing import NamedTuple

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.console.page import PATH as CONSOLE
from mcpfleet.contracts.authorization import AuthorizationClient
from mcpfleet.contracts.catalog import CatalogClient
from mcpfleet.contracts.files import FilesClient
from mcpfleet.contracts.policy import PolicyClient
from mcpfleet.contracts.sessions import SessionsClient
from mcpfleet.contracts.subscriptions import SubscriptionsClient
from mcpfleet.contracts.tasks import TasksClient
from mcpfleet.edge.calls.end import CallEnds
from mcpfleet.edge.calls.in_flight import InFlightCalls
from mcpfleet.edge.calls.large_results import LargeResults
from mcpfleet.edge.calls.permit_check import PermitCheck
from mcpfleet.edge.calls.queue import CallQueue
from mcpfleet.edge.calls.read_check import ReadCheck
from mcpfleet.edge.calls.relay import CallParts
from mcpfleet.edge.catalog.files import Files
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.identity.admission import Admission
from mcpfleet.edge.identity.limits import Limits
from mcpfleet.edge.identity.metadata import Metadata, ResourceMetadata
from mcpfleet.edge.identity.revocation import Revocations
from mcpfleet.edge.methods.extensions import ExtensionMethods
from mcpfleet.edge.methods.invoke import Callers, Invoker
from mcpfleet.edge.methods.lists import Lists
from mcpfleet.edge.methods.registry import MethodTable, protocol_methods
from mcpfleet.edge.methods.sessions import SessionMethods
from mcpfleet.edge.methods.skills import SkillMethods
from mcpfleet.edge.methods.tasks import TaskMethods
from mcpfleet.edge.protocol.continuation import Continuation
from mcpfleet.edge.protocol.own_sealer import BoundedSealer, load
from mcpfleet.edge.protocol.sealer import KeySealer, Sealer
from mcpfleet.edge.server.app import Application, RequestSpans
from mcpfleet.edge.server.audit import Audit
from mcpfleet.edge.server.bodies import RequestBodies
from mcpfleet.edge.server.compat_2025 import Compat2025
from mcpfleet.edge.server.front_page import FrontPage
from mcpfleet.edge.server.router import Gate, RequestRouter
from mcpfleet.edge.server.session_endpoint import SessionEndpoint
from mcpfleet.edge.sessions.elicitation import ClientRequests, Elicitation
from mcpfleet.edge.sessions.event_streams import SessionStreams
from mcpfleet.edge.sessions.in_flight import InFlightRequests
from mcpfleet.edge.sessions.session_cache import SessionCache
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.hub import Hub, StreamParts
from mcpfleet.edge.streams.lease import StreamAuthority, StreamLeases
from mcpfleet.edge.streams.listen import ListenStreams
from mcpfleet.edge.streams.own_changes import OwnChanges
from mcpfleet.edge.streams.quota import Quota
from mcpfleet.edge.streams.task_updates import TaskUpdates
from mcpfleet.edge.streams.uri_permits import UriPermits
from mcpfleet.edge.streams.watchers import Watchers
from mcpfleet.edge.tasks.create import TaskCreation
from mcpfleet.edge.tasks.idempotency import Idempotency
from mcpfleet.edge.tasks.sanitize import Sanitizer
from mcpfleet.edge.transport.allowed_hosts import AllowedHosts
from mcpfleet.edge.transport.cors import Cors
from mcpfleet.edge.transport.memory_budget import MemoryBudget
from mcpfleet.process.events import SnapshotChanged
from mcpfleet.process.observers import Observers
from mcpfleet.process.run import Process
from mcpfleet.telemetry.instruments import AdmissionInstruments, EdgeInstruments, FileInstruments, StreamInstruments
from mcpfleet.telemetry.trace import TraceSampling


class Identity(NamedTuple):
    """The parts that know callers."""

    metadata: ResourceMetadata | None
    """None where no credentials are asked for."""
    admission: Admission
    revocations: Revocations
    limits: Limits


class SessionParts(NamedTuple):
    """The parts that serve sessions of clients of 2025."""

    cache: SessionCache
    in_flight: InFlightRequests
    requests: ClientRequests
    streams: SessionStreams

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Hear what other edges and subscriptions say of sessions, until cancelled."""
        for part in (self.cache, self.in_flight, self.requests):
            await part.listen()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.in_flight.check)
            await tasks.start(self.streams.run)
            task_status.started()


class Edge(NamedTuple):
    """The parts by which an edge is started, drained and shown."""

    application: Application
    snapshots: Snapshots
    calls: InFlightCalls
    identity: Identity
    sealer: Sealer
    hub: Hub
    listen: ListenStreams
    sessions: SessionParts
    audit: Audit


class _Streams(NamedTuple):
    hub: Hub
    listen: ListenStreams
    leases: StreamLeases
    permits: UriPermits


def wire(process: Process[EdgeSettings], bus: Bus, base_url: str) -> Edge:
    """Make an edge; nothing of it runs yet.

    Args:
        process: the edge's.
        bus: not running yet.
        base_url: the beginning of the endpoints' URLs, as clients on this machine reach them.
    """
    settings, log, instruments = process.settings, process.log, EdgeInstruments(process.telemetry.metrics)
    for name, endpoint in settings.endpoints.items():
        if endpoint.legacy is not None:
            log.warning("setting renamed", setting="MCPFLEET_ENDPOINTS", endpoint=name, **endpoint.renamed)
    snapshots = Snapshots(
        bus, CatalogClient(bus), settings.endpoints, settings=settings, tracer=process.telemetry.tracer, log=log
    )
    observers = process.observers
    snapshots.on_change(lambda endpoint: _tell_snapshot(snapshots, observers, endpoint))
    identity = _identity(process, bus, snapshots, base_url)
    callers = Callers(identity.admission, identity.limits, snapshots)
    sealer = _sealer(settings, log)
    continuation = Continuation(sealer, settings)
    calls = _calls(process, bus, identity, continuation, instruments)
    tasks = TasksClient(bus)
    files = Files(FilesClient(bus), settings.file_room, instruments=FileInstruments(process.telemetry.metrics), log=log)
    sanitizer = Sanitizer(calls.queue, calls.large_results, snapshots, settings=settings, log=log)
    streams = _streams(process, bus, identity, callers, calls=calls, sanitizer=sanitizer)
    sessions = _sessions(process, bus, identity, streams)
    invoker = Invoker(
        calls,
        callers,
        continuation,
        Elicitation(sessions.requests, settings),
        tasks=TaskCreation(tasks, settings.endpoints, log=log),
        idempotency=Idempotency(bus, tasks, log, settings.repeats_waiting),
        files=files,
    )
    methods = MethodTable(
        protocol_methods(
            Lists(sealer, invoker, settings),
            invoker,
            streams.listen,
            TaskMethods(tasks, identity.limits, sanitizer, log=log),
            SessionMethods(
                sessions.cache, sessions.streams, callers, settings, permits=streams.permits, leases=streams.leases
            ),
            skills=SkillMethods(sealer, callers, settings),
        ),
        ExtensionMethods(snapshots, invoker).of,
    )
    audit = Audit(
        process.name,
        process.id,
        is_on=settings.audit,
        lost=instruments.audit_lost,
        form=settings.log_format,
        out=process.write_composed,
    )
    compat = Compat2025(settings.endpoints, callers, sessions.cache, sessions.in_flight)
    router = RequestRouter(_gate(process, identity, callers, sessions), callers, compat, methods, audit)
    # Where nothing is exported nothing is sampled, and no trace is begun only to be dropped.
    ratio = settings.sample_ratio if process.telemetry.enabled else 0.0
    spans = RequestSpans(process.telemetry.tracer, TraceSampling.of(ratio, settings.trusted_networks))
    application = Application(
        router, snapshots, settings, spans=spans, instruments=instruments, observers=observers, log=log
    )
    return Edge(application, snapshots, calls.calls, identity, sealer, streams.hub, streams.listen, sessions, audit)


def _tell_snapshot(snapshots: Snapshots, observers: Observers, endpoint: str) -> None:
    """Tell observers of an endpoint's new snapshot."""
    snapshot = snapshots.newest(endpoint)
    if observers.is_on and snapshot is not None:
        observers.tell(SnapshotChanged, endpoint, snapshot.number, len(snapshot.every))


def _sealer(settings: EdgeSettings, log: FilteringBoundLogger) -> Sealer:
    if settings.sealer:
        return BoundedSealer(load(settings.sealer), log=log)
    return KeySealer(settings.seal_keys, adopted_after=settings.seal_keys_adopted, log=log)


def _identity(process: Process[EdgeSettings], bus: Bus, snapshots: Snapshots, base_url: str) -> Identity:
    settings, log = process.settings, process.log
    metadata = ResourceMetadata(settings, base_url, snapshots.scopes) if settings.authorization != "none" else None
    authorization = AuthorizationClient(bus)
    admission = Admission(
        authorization,
        settings,
        metadata,
        instruments=AdmissionInstruments(process.telemetry.metrics),
        log=log,
    )
    revocations = Revocations(bus, authorization, admission, settings, log=log)
    limits = Limits(AuthorizationClient(bus, timeout=settings.rate_wait), settings, edge=process.id, log=log)
    return Identity(metadata, admission, revocations, limits)


def _calls(
    process: Process[EdgeSettings],
    bus: Bus,
    identity: Identity,
    continuation: Continuation,
    instruments: EdgeInstruments,
) -> CallParts:
    settings, log = process.settings, process.log
    calls = InFlightCalls(bus, settings, log)
    instruments.calls_running.observe(lambda: len(calls))
    results = LargeResults(bus, MemoryBudget(settings.result_room, "MCPFLEET_RESULT_ROOM"), settings)
    queue = CallQueue(calls, settings, instruments)
    ends = CallEnds(continuation, log, identity.admission.insufficient_scope)
    return CallParts(calls, queue, results, ends, settings, log)


def _streams(
    process: Process[EdgeSettings],
    bus: Bus,
    identity: Identity,
    callers: Callers,
    *,
    calls: CallParts,
    sanitizer: Sanitizer,
) -> _Streams:
    settings, log, tracer = process.settings, process.log, process.telemetry.tracer
    instruments = StreamInstruments(process.telemetry.metrics)
    check = ReadCheck(
        calls.queue,
        callers.snapshots,
        callers.limits,
        settings,
        permits=PermitCheck(bus, settings, instruments=instruments, log=log),
        instruments=instruments,
        log=log,
    )
    permits = UriPermits(check, settings, instruments=instruments, observers=process.observers, log=log)
    updates = TaskUpdates(bus, TasksClient(bus), sanitizer, settings, tracer=tracer, log=log)
    quota = Quota(SubscriptionsClient(bus), process.id, interval=settings.streams_leased, log=log)
    watchers = Watchers(bus, permits, settings, tracer=tracer, log=log)
    parts = StreamParts(watchers, updates, quota, OwnChanges(bus, permits, settings, tracer=tracer))
    hub = Hub(bus, callers.snapshots, parts, settings, instruments=instruments, log=log)
    identity.admission.on_policy_changed(callers.snapshots.policy_changed)
    identity.admission.on_revoked(hub.revoke)
    identity.admission.on_keys_ended(hub.end_keys)
    authority = StreamAuthority(identity.admission, callers.snapshots, PolicyClient(bus))
    leases = StreamLeases(authority, longest=settings.permission_lasts)
    listen = ListenStreams(
        hub, quota, leases, callers.limits, settings=settings, instruments=instruments, observers=process.observers
    )
    return _Streams(hub, listen, leases, permits)


def _sessions(process: Process[EdgeSettings], bus: Bus, identity: Identity, streams: _Streams) -> SessionParts:
    settings, log = process.settings, process.log
    client = SessionsClient(bus)
    cache = SessionCache(bus, client, identity.limits, settings, log=log)
    admission = identity.admission
    cache.tell_of(lambda exchange: admission.holder(exchange.endpoint, exchange.caller, exchange.credential))
    in_flight = InFlightRequests(bus, cache, settings, log=log)
    event_streams = SessionStreams(bus, cache, streams.listen, streams.hub, streams.leases, settings, log=log)
    return SessionParts(cache, in_flight, ClientRequests(bus, client, log=log), event_streams)


def _gate(process: Process[EdgeSettings], identity: Identity, callers: Callers, sessions: SessionParts) -> Gate:
    settings = process.settings
    cors = Cors(settings.cors_origins)
    hosts = AllowedHosts(settings.bind, settings.public_names, cors.origins, log=process.log)
    console_url = f"{process.pages.url}{CONSOLE}" if settings.console and process.pages.url else ""
    pages: tuple[Metadata | FrontPage, ...] = (FrontPage(settings, hosts, console_url),)
    if identity.metadata is not None:
        pages = (Metadata(identity.metadata, settings.endpoints, hosts), *pages)
    endpoint = SessionEndpoint(
        settings.endpoints, callers, sessions.cache, sessions.streams, sessions.requests, sessions.in_flight
    )
    paths = {each.path: name for name, each in settings.endpoints.items()}
    return Gate(settings.endpoints, paths, hosts, cors, pages, endpoint, RequestBodies(callers.admission, settings))
