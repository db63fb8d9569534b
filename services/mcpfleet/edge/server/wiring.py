"""The parts of an edge, each made once and given what it needs."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

import anyio
from anyio.abc import TaskStatus

from mcpfleet.bus.bus import Bus
from mcpfleet.contracts.authorization import AuthorizationClient
from mcpfleet.contracts.catalog import CatalogClient
from mcpfleet.contracts.sessions import SessionsClient
from mcpfleet.contracts.subscriptions import SubscriptionsClient
from mcpfleet.contracts.tasks import TasksClient
from mcpfleet.edge.calls.end import Ends
from mcpfleet.edge.calls.in_flight import Calls
from mcpfleet.edge.calls.large_results import Bodies
from mcpfleet.edge.calls.queue import Dispatch
from mcpfleet.edge.calls.read_check import ReadCheck
from mcpfleet.edge.calls.relay import Answering
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.identity.admission import Admission
from mcpfleet.edge.identity.limits import Limits
from mcpfleet.edge.identity.metadata import Access, Metadata
from mcpfleet.edge.identity.revocation import Revocations
from mcpfleet.edge.methods.invoke import Uses
from mcpfleet.edge.methods.lists import Lists
from mcpfleet.edge.methods.sessions import SessionMethods
from mcpfleet.edge.methods.tasks import TaskMethods
from mcpfleet.edge.protocol.continuation import Rounds
from mcpfleet.edge.protocol.sealer import Protector
from mcpfleet.edge.server.app import Application
from mcpfleet.edge.server.audit import Audit
from mcpfleet.edge.server.compat_2025 import Legacy
from mcpfleet.edge.server.router import Methods
from mcpfleet.edge.server.session_endpoint import SessionDoor
from mcpfleet.edge.sessions.elicitation import Asking
from mcpfleet.edge.sessions.event_streams import SessionStreams
from mcpfleet.edge.sessions.in_flight import Running
from mcpfleet.edge.sessions.questions import Questions
from mcpfleet.edge.sessions.session_cache import Sessions
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.hub import Hub
from mcpfleet.edge.streams.lease import Permits
from mcpfleet.edge.streams.listen import Listens
from mcpfleet.edge.streams.quota import Quota
from mcpfleet.edge.streams.task_updates import TaskNews
from mcpfleet.edge.streams.uri_permits import UriPermits
from mcpfleet.edge.tasks.create import Creation
from mcpfleet.edge.tasks.idempotency import OnceCalls
from mcpfleet.edge.tasks.sanitize import Showing
from mcpfleet.edge.transport.allowed_hosts import Doors
from mcpfleet.edge.transport.cors import Cors
from mcpfleet.edge.transport.memory_budget import Room
from mcpfleet.process.run import Process
from mcpfleet.telemetry.instruments import AdmissionInstruments, EdgeInstruments, StreamInstruments


class Callers(NamedTuple):
    """Who may do what, and how often."""

    access: Access | None
    """None where no credentials are asked for."""
    admission: Admission
    revocations: Revocations
    limits: Limits


class Edge(NamedTuple):
    """What an edge is started, drained and shown by."""

    application: Application
    snapshots: Snapshots
    calls: Calls
    callers: Callers
    protector: Protector
    hub: Hub
    sessions: SessionParts


class SessionParts(NamedTuple):
    """What serves the sessions of clients of 2025."""

    known: Sessions
    running: Running
    questions: Questions
    streams: SessionStreams

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Hear what other edges and subscriptions say of sessions, until cancelled."""
        for part in (self.known, self.running, self.questions):
            await part.listen()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.running.check)
            await tasks.start(self.streams.run)
            task_status.started()


def wire(process: Process[EdgeSettings], bus: Bus, base_url: str) -> Edge:
    """Make an edge; nothing of it runs yet.

    Args:
        process: the edge's.
        bus: not running yet.
        base_url: what the endpoints' URLs begin with, as clients on this machine reach them.
    """
    settings, log, metrics = process.settings, process.log, process.telemetry.metrics
    instruments = EdgeInstruments(metrics)
    snapshots = Snapshots(
        bus, CatalogClient(bus), settings.endpoints, settings=settings, tracer=process.telemetry.tracer, log=log
    )
    callers = _callers(process, bus, snapshots, base_url)
    calls = Calls(bus, settings, log)
    protector = Protector(settings.seal_keys, adopted_after=settings.seal_keys_adopted, log=log)
    rounds = Rounds(protector, settings)
    answering = _answering(process, bus, calls, rounds, instruments)
    showing = Showing(answering.dispatch, answering.bodies, snapshots, settings=settings, log=log)
    streams = StreamInstruments(metrics)
    check = ReadCheck(answering.dispatch, snapshots, callers.limits, settings, instruments=streams, log=log)
    permits = UriPermits(check, settings, instruments=streams, log=log)
    hub, listens = _streams(process, bus, callers, snapshots, showing=showing, permits=permits, instruments=streams)
    tasks = TasksClient(bus)
    sessions = _sessions(process, bus, callers, listens, hub)
    uses = Uses(
        answering,
        rounds,
        snapshots,
        settings,
        admission=callers.admission,
        limits=callers.limits,
        creation=Creation(tasks, settings.endpoints, log=log),
        once=OnceCalls(bus, tasks, log, settings.repeats_waiting),
        asking=Asking(sessions.questions, settings),
    )
    lists = Lists(protector, uses, settings)
    methods = Methods(
        endpoints=settings.endpoints,
        admission=callers.admission,
        limits=callers.limits,
        snapshots=snapshots,
        lists=lists,
        uses=uses,
        legacy=_legacy(settings, callers, lists, uses, sessions=sessions, permits=permits),
        listens=listens,
        tasks=TaskMethods(tasks, callers.limits, showing, log=log),
        audit=Audit(process.name, process.id, is_on=settings.audit, lost=instruments.audit_lost),
    )
    application = _application(
        process,
        methods,
        snapshots,
        callers,
        door=_door(settings, callers, snapshots, sessions),
        instruments=instruments,
    )
    return Edge(application, snapshots, calls, callers, protector, hub, sessions)


def _callers(process: Process[EdgeSettings], bus: Bus, snapshots: Snapshots, base_url: str) -> Callers:
    settings, log = process.settings, process.log
    access = Access(settings, base_url, snapshots.scopes) if settings.authorization != "none" else None
    authorization = AuthorizationClient(bus)
    instruments = AdmissionInstruments(process.telemetry.metrics)
    admission = Admission(
        authorization,
        entries=settings.admission_entries,
        access=access,
        silence=settings.authority_silence,
        together=settings.authorization in ("jwt", "static"),
        instruments=instruments,
        log=log,
    )
    revocations = Revocations(bus, authorization, admission, settings, log=log)
    limits = Limits(AuthorizationClient(bus, timeout=settings.rate_wait), settings, edge=process.id, log=log)
    return Callers(access, admission, revocations, limits)


def _answering(
    process: Process[EdgeSettings], bus: Bus, calls: Calls, rounds: Rounds, instruments: EdgeInstruments
) -> Answering:
    settings = process.settings
    instruments.calls_running.observe(lambda: len(calls))
    return Answering(
        calls,
        Dispatch(calls, settings, instruments),
        Bodies(bus, Room(settings.result_room, "MCPFLEET_RESULT_ROOM"), settings),
        Ends(rounds, process.log),
        settings=settings,
        log=process.log,
    )


def _streams(
    process: Process[EdgeSettings],
    bus: Bus,
    callers: Callers,
    snapshots: Snapshots,
    *,
    showing: Showing,
    permits: UriPermits,
    instruments: StreamInstruments,
) -> tuple[Hub, Listens]:
    settings, log, tracer = process.settings, process.log, process.telemetry.tracer
    news = TaskNews(bus, TasksClient(bus), showing, settings, tracer=tracer, log=log)
    quota = Quota(SubscriptionsClient(bus), process.id, interval=settings.streams_leased, log=log)
    hub = Hub(
        bus,
        snapshots,
        settings,
        tasks=news,
        permits=permits,
        quota=quota,
        tracer=tracer,
        instruments=instruments,
        log=log,
    )
    callers.admission.on_ended(hub.revoke)
    callers.admission.on_keys_ended(hub.end_keys)
    given = Permits(callers.admission, longest=settings.permission_lasts)
    return hub, Listens(bus, hub, quota, given, callers.limits, settings=settings, instruments=instruments)


def _door(settings: EdgeSettings, callers: Callers, snapshots: Snapshots, sessions: SessionParts) -> SessionDoor:
    return SessionDoor(
        settings.endpoints,
        callers.admission,
        callers.limits,
        snapshots,
        sessions=sessions.known,
        streams=sessions.streams,
        questions=sessions.questions,
        running=sessions.running,
    )


def _sessions(process: Process[EdgeSettings], bus: Bus, callers: Callers, listens: Listens, hub: Hub) -> SessionParts:
    settings, log = process.settings, process.log
    client = SessionsClient(bus)
    known = Sessions(bus, client, callers.limits, settings, log=log)
    running = Running(bus, known, settings, log=log)
    streams = SessionStreams(bus, known, listens, hub, settings, log=log)
    return SessionParts(known, running, Questions(bus, client, log=log), streams)


def _legacy(
    settings: EdgeSettings,
    callers: Callers,
    lists: Lists,
    uses: Uses,
    *,
    sessions: SessionParts,
    permits: UriPermits,
) -> Legacy:
    methods = SessionMethods(sessions.known, sessions.streams, callers.admission, callers.limits, permits)
    return Legacy(settings.endpoints, lists, uses, sessions=sessions.known, running=sessions.running, methods=methods)


def _application(
    process: Process[EdgeSettings],
    methods: Methods,
    snapshots: Snapshots,
    callers: Callers,
    *,
    door: SessionDoor,
    instruments: EdgeInstruments,
) -> Application:
    settings = process.settings
    cors = Cors(settings.cors_origins)
    public_hosts = (*settings.public_hosts, *filter(None, [urlsplit(settings.public_url).netloc]))
    doors = Doors(settings.bind, public_hosts, cors.origins, log=process.log)
    return Application(
        endpoints=settings.endpoints,
        doors=doors,
        cors=cors,
        admission=callers.admission,
        limits=callers.limits,
        metadata=Metadata(callers.access, settings.endpoints, doors) if callers.access is not None else None,
        methods=methods,
        sessions=door,
        room=Room(settings.request_room, "MCPFLEET_REQUEST_ROOM"),
        arriving=Room(settings.arriving_room, "MCPFLEET_ARRIVING_ROOM"),
        snapshots=snapshots,
        settings=settings,
        tracer=process.telemetry.tracer,
        is_traced=process.telemetry.enabled,
        instruments=instruments,
        log=process.log,
    )
