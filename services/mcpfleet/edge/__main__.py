"""Runs an edge: `python -m mcpfleet.edge`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias

import anyio

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.discovery import Discovery
from mcpfleet.bus.service import bus_of, prove_drained
from mcpfleet.console.publish import serve_console
from mcpfleet.contracts.access import refuse_exposed, refuse_nameless
from mcpfleet.contracts.stats import Role
from mcpfleet.edge.server.app import Application
from mcpfleet.edge.server.lifecycle import LeadAway, Readiness, drain, nobody, watch_departure
from mcpfleet.edge.server.wiring import wire
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.stream import StreamEnd
from mcpfleet.edge.transport.hypercorn.server import EdgeConfig, run_server
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.run import Process, Service, run
from mcpfleet.telemetry.instruments import ConnectionInstruments

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
    instruments = ConnectionInstruments(process.telemetry.metrics)

    async def server(application: Application, stop: anyio.Event) -> None:
        await run_server(application, config, stop, instruments=instruments, log=process.log)

    urls = [config.url(each.path) for each in settings.endpoints.values()]
    lead_away = config.go_aways.lead_away
    await serve_over(process, bus_of(process, "edge"), server, urls, base_url=config.url(""), lead_away=lead_away)


async def serve_over(
    process: Process[EdgeSettings],
    bus: Bus,
    server: Server,
    urls: Sequence[str] = (),
    *,
    base_url: str = "http://localhost",
    lead_away: LeadAway = nobody,
    on_stream_end: Callable[[StreamEnd], None] | None = None,
) -> None:
    """The same, over a bus and by a server of the caller's; says `ready` for each of the URLs.

    Args:
        process: the edge's.
        bus: not running yet.
        server: serves the edge's application.
        urls: of the endpoints, as clients on this machine reach them.
        base_url: what those begin with.
        lead_away: tells the server's clients to make new connections, where its answers cannot.
        on_stream_end: hears how each stream ends.
    """
    settings = process.settings
    edge = wire(process, bus, base_url)
    await edge.sealer.check()
    watch_departure(process.departure, edge)
    if on_stream_end is not None:
        edge.listen.on_end(on_stream_end)
    readiness = Readiness(process, bus, edge.snapshots, list(urls))
    stopped = anyio.Event()
    async with anyio.create_task_group() as tasks:
        await tasks.start(bus.run)
        await Discovery(bus, process.name).listen()
        tasks.start_soon(serve_console, process, bus, Role.EDGE)
        await edge.calls.listen()
        tasks.start_soon(edge.calls.sweep)
        await tasks.start(edge.hub.run)
        await tasks.start(edge.sessions.run)
        await tasks.start(edge.snapshots.run)
        await tasks.start(edge.identity.admission.run)
        await tasks.start(edge.identity.revocations.run)
        await tasks.start(edge.identity.limits.run)
        tasks.start_soon(readiness.run)
        tasks.start_soon(edge.sealer.watch, settings.seal_keys_reread)
        async with anyio.create_task_group() as serving:
            serving.start_soon(server, edge.application, stopped)
            await process.stopping.wait()
            await drain(edge, settings, lead_away, process.departure)
            stopped.set()
        edge.audit.write()
        await prove_drained(process, bus)
        tasks.cancel_scope.cancel()


SERVICE: Final = Service("edge", serve, EdgeSettings)


if __name__ == "__main__":
    sys.exit(run(SERVICE))
