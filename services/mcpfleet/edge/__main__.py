"""Wires an edge, and runs it: `python -m mcpfleet.edge`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import anyio

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.connect import bus_of
from mcpfleet.bus.discovery import Discovery
from mcpfleet.contracts.authorization import AuthorizationClient
from mcpfleet.contracts.catalog import CatalogClient
from mcpfleet.contracts.exposure import refuse_exposed, refuse_nameless
from mcpfleet.contracts.figures import Role
from mcpfleet.contracts.tasks import TasksClient
from mcpfleet.edge.access.admission import Admission
from mcpfleet.edge.access.audit import Audit
from mcpfleet.edge.access.authority import Authority
from mcpfleet.edge.access.limits import Limits
from mcpfleet.edge.access.metadata import Access, Metadata
from mcpfleet.edge.calls.answering import Answering
from mcpfleet.edge.calls.bodies import Bodies
from mcpfleet.edge.calls.ends import Ends
from mcpfleet.edge.calls.pending import Calls
from mcpfleet.edge.calls.uses import Uses
from mcpfleet.edge.calls.waiting import Dispatch
from mcpfleet.edge.drain import LeadAway, drain, nobody
from mcpfleet.edge.http.app import Application
from mcpfleet.edge.http.cors import Cors
from mcpfleet.edge.http.doors import Doors
from mcpfleet.edge.http.room import Room
from mcpfleet.edge.http.server import EdgeConfig, run_server
from mcpfleet.edge.protocol.lists import Lists
from mcpfleet.edge.protocol.methods import Methods
from mcpfleet.edge.protocol.protector import Protector
from mcpfleet.edge.protocol.rounds import Rounds
from mcpfleet.edge.readiness import Readiness
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.snapshots import Snapshots
from mcpfleet.edge.streams.hub import Hub
from mcpfleet.edge.streams.listens import Listens
from mcpfleet.edge.streams.permission import Permits
from mcpfleet.edge.streams.task_news import TaskNews
from mcpfleet.edge.tasks.creation import Creation
from mcpfleet.edge.tasks.methods import TaskMethods
from mcpfleet.edge.tasks.once import OnceCalls
from mcpfleet.live.telling import show
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.run import Process, Service, run
from mcpfleet.telemetry.instruments import AdmissionInstruments, EdgeInstruments, StreamInstruments

Server: TypeAlias = Callable[[Application, anyio.Event], Coroutine[Any, Any, None]]
"""Serves an application to clients until the event is set."""


async def serve(process: Process[EdgeSettings]) -> None:
    """Run an edge until it is told to stop, and drain it."""
    settings = process.settings
    mode = settings.authorization
    refusals = (
        refuse_exposed(settings.bind, mode, allow_anonymous=settings.allow_anonymous),
        refuse_nameless(settings.bind, mode, settings.public_url),
    )
    if any(refusals):
        raise ConfigurationError(*filter(None, refusals))
    config = EdgeConfig(settings)

    async def server(application: Application, stop: anyio.Event) -> None:
        await run_server(application, config, stop)

    urls = [config.url(each.path) for each in settings.endpoints.values()]
    lead_away = config.farewell.lead_away
    await serve_over(process, bus_of(process, "edge"), server, urls, base_url=config.url(""), lead_away=lead_away)


async def serve_over(
    process: Process[EdgeSettings],
    bus: Bus,
    server: Server,
    urls: Sequence[str] = (),
    *,
    base_url: str = "http://localhost",
    lead_away: LeadAway = nobody,
) -> None:
    """The same, over a bus and by a server of the caller's; says `ready` for each of the URLs.

    Args:
        process: the edge's.
        bus: not running yet.
        server: serves the edge's application.
        urls: of the endpoints, as clients on this machine reach them.
        base_url: what those begin with.
        lead_away: tells the server's clients to make new connections, where its answers cannot.
    """
    settings = process.settings
    tracer = process.telemetry.tracer
    snapshots = Snapshots(
        bus, CatalogClient(bus), settings.endpoints, settings=settings, tracer=tracer, log=process.log
    )
    calls = Calls(bus, settings, process.log)
    access = Access(settings, base_url, snapshots.scopes) if settings.authorization != "none" else None
    authorization = AuthorizationClient(bus)
    admitting = AdmissionInstruments(process.telemetry.metrics)
    admission = Admission(authorization, entries=settings.admission_entries, access=access, instruments=admitting)
    authority = Authority(bus, authorization, admission, settings, log=process.log)
    protector = Protector(settings.seal_keys, adopted_after=settings.seal_keys_adopted, log=process.log)
    limits = Limits(AuthorizationClient(bus, timeout=settings.rate_wait), settings, edge=process.id, log=process.log)
    streams = StreamInstruments(process.telemetry.metrics)
    news = TaskNews(bus, TasksClient(bus), settings, tracer=tracer, log=process.log)
    hub = Hub(bus, snapshots, settings, tasks=news, tracer=tracer, instruments=streams, log=process.log)
    admission.on_ended(hub.revoke)
    listens = Listens(bus, hub, Permits(admission), limits, settings=settings, instruments=streams)
    application = _application(process, bus, snapshots, calls, protector, admission, access, limits, listens)
    readiness = Readiness(process, bus, snapshots, list(urls))
    stopped = anyio.Event()
    async with anyio.create_task_group() as tasks:
        await tasks.start(bus.run)
        await Discovery(bus, process.name).listen()
        tasks.start_soon(show, process, bus, Role.EDGE)
        await calls.listen()
        tasks.start_soon(calls.sweep)
        await tasks.start(hub.run)
        await tasks.start(snapshots.run)
        await tasks.start(admission.run)
        await tasks.start(authority.run)
        tasks.start_soon(readiness.run)
        tasks.start_soon(protector.watch, settings.seal_keys_reread)
        async with anyio.create_task_group() as serving:
            serving.start_soon(server, application, stopped)
            await process.stopping.wait()
            await drain(application, calls, hub, settings, lead_away)
            stopped.set()
        tasks.cancel_scope.cancel()


def _application(  # noqa: PLR0917  # each is a part of the edge
    process: Process[EdgeSettings],
    bus: Bus,
    snapshots: Snapshots,
    calls: Calls,
    protector: Protector,
    admission: Admission,
    access: Access | None,
    limits: Limits,
    listens: Listens,
) -> Application:
    settings = process.settings
    instruments = EdgeInstruments(process.telemetry.metrics)
    instruments.calls_running.observe(lambda: len(calls))
    rounds = Rounds(protector, settings)
    answering = Answering(
        calls,
        Dispatch(calls, settings, instruments),
        Bodies(bus, Room(settings.result_room, "MCPFLEET_RESULT_ROOM"), settings.result_limit),
        Ends(rounds, process.log),
        settings=settings,
        log=process.log,
    )
    tasks = TasksClient(bus)
    creation = Creation(tasks, settings.endpoints, log=process.log)
    uses = Uses(
        answering, rounds, snapshots, settings,
        admission=admission, limits=limits, creation=creation, once=OnceCalls(bus, tasks, process.log),
    )  # fmt: skip
    methods = Methods(
        endpoints=settings.endpoints,
        admission=admission,
        limits=limits,
        snapshots=snapshots,
        lists=Lists(protector, uses, settings),
        uses=uses,
        listens=listens,
        tasks=TaskMethods(tasks, limits, log=process.log),
        audit=Audit(process.name, process.id, is_on=settings.audit),
    )
    cors = Cors(settings.cors_origins)
    public_hosts = (*settings.public_hosts, *filter(None, [urlsplit(settings.public_url).netloc]))
    doors = Doors(settings.bind, public_hosts, cors.origins)
    return Application(
        endpoints=settings.endpoints,
        doors=doors,
        cors=cors,
        admission=admission,
        limits=limits,
        metadata=Metadata(access, settings.endpoints, doors) if access is not None else None,
        methods=methods,
        room=Room(settings.request_room, "MCPFLEET_REQUEST_ROOM"),
        snapshots=snapshots,
        settings=settings,
        tracer=process.telemetry.tracer,
        is_traced=process.telemetry.enabled,
        instruments=instruments,
        log=process.log,
    )


SERVICE: Final = Service("edge", serve, EdgeSettings)


if __name__ == "__main__":
    sys.exit(run(SERVICE))
