"""How an edge becomes ready, and how it leaves: clients first, then what runs, the server last (D14)."""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

import anyio

from mcpfleet.bus.bus import Bus
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.server.wiring import Edge
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.stream import StreamEnd
from mcpfleet.process.logs import say_ready
from mcpfleet.process.service import Process
from mcpfleet.process.shutdown import BUS, LEASES, Departure

_COMES_BACK: Final = 0.5
"""Seconds in which a client goes on where its stream has ended."""
_LAST_WORDS: Final = 1.0
"""Seconds for the answers of calls that were ended."""


class Readiness:
    """Sets the health conditions of an edge, and says `ready` once on standard output."""

    def __init__(self, process: Process[EdgeSettings], bus: Bus, snapshots: Snapshots, urls: list[str]) -> None:
        self._process = process
        self._bus = bus
        self._snapshots = snapshots
        self._urls = urls
        self._changed = anyio.Event()
        bus.on_link(lambda _: self._changed.set())

    async def run(self) -> None:
        """Keep the conditions true to the facts, until cancelled."""
        health = self._process.health
        health.set("catalog", ok=False, why="no application has announced itself yet")
        health.set("nats", ok=False, why="no link to NATS yet (MCPFLEET_NATS_URL)")
        await self._bus.wait_up()
        health.set("nats", ok=True)
        await self._snapshots.wait_known()
        health.set("catalog", ok=True)
        for url in self._urls:
            say_ready(self._process.log, url)
        while True:
            await self._bus.wait_up()
            health.set("nats", ok=True)
            await self._wait_away()
            health.set("nats", ok=False, why="no link to NATS for a while (MCPFLEET_NATS_URL)")

    async def _wait_away(self) -> None:
        """Wait until the bus has been away for so long that others should take over.

        Shorter losses leave the edge ready: the others have lost the same NATS, and a 503 of our own says more than a
        balancer's.
        """
        while True:
            self._changed = anyio.Event()
            if self._bus.is_up:
                await self._changed.wait()
                continue
            with anyio.move_on_after(self._process.settings.unready_after):
                await self._bus.wait_up()
                continue
            return


class LeadAway(Protocol):
    """Tells the clients of HTTP/2, whose answers cannot, to make new connections."""

    def __call__(self, *, busy: bool) -> None:
        """Tell idle ones, and others as they become idle; `busy` tells all."""


def nobody(*, busy: bool) -> None:
    """Tell nobody: this edge serves no HTTP/2."""


async def drain(
    edge: Edge, settings: EdgeSettings, lead_away: LeadAway = nobody, departure: Departure | None = None
) -> None:
    """Serve what still arrives for `lame`, then wait for what runs, at most as long as `drain` says.

    From the first moment each answer tells its client to make a new connection. That leads to another edge, since this
    one is not ready any more. Listen streams are ended one after the other, while the calls run (S17). Calls that still
    run at the end are ended as uncertain: a stream that just breaks off would say nothing (D17).

    Where there is no other edge, clients find this one a little longer than their calls take. Some ask for more before
    they return a result, and lose it where nobody answers (S23).
    """
    application, hub = edge.application, edge.hub
    departure = departure or Departure("edge", "")
    finished, cancelled, cut = edge.calls.finished, edge.calls.cancelled, edge.calls.cut
    edge.listen.on_end(partial(_count, departure))
    application.is_draining = True
    hub.drain()
    lead_away(busy=False)
    with departure.phase("lame"):
        await anyio.sleep(settings.lame)
    lead_away(busy=True)
    with anyio.move_on_after(settings.drain) as patience:
        with departure.phase("streams"):
            await hub.end_all(settings.drain)
        with departure.phase("calls"):
            await application.wait_idle()
        with departure.phase("quiet"):
            # A client whose stream has just ended asks again over the same connection. Its stream could not tell it
            # that the connection closes, so it would find it closing.
            await anyio.sleep(min(settings.lame, _COMES_BACK))
            await application.wait_quiet(settings.drain_grace)
    if patience.cancelled_caught:
        departure.remain()
        with departure.phase("last words"):
            hub.end_now()
            edge.calls.end_all()
            edge.sessions.requests.give_up()
            with anyio.move_on_after(_LAST_WORDS) as last_words:
                await application.wait_idle()
            if not last_words.cancelled_caught:
                with anyio.move_on_after(settings.drain_grace):
                    await application.wait_quiet(settings.drain_grace)
    with departure.phase("leases"), anyio.move_on_after(_LAST_WORDS):
        await edge.identity.limits.give_back()
        departure.prove(LEASES)
    calls = edge.calls
    departure.calls_finished, departure.calls_cancelled = calls.finished - finished, calls.cancelled - cancelled
    departure.calls_cut = calls.cut - cut


def watch_departure(departure: Departure, edge: Edge) -> None:
    """Let the account of an edge's end know what it serves."""
    departure.watch("request", edge.application.open_requests)
    departure.watch("stream", lambda: [(stream.kind, stream.began) for stream in edge.hub.streams()])
    departure.expect(BUS, LEASES)


def _count(departure: Departure, end: StreamEnd) -> None:
    departure.streams[end.reason] += 1
    departure.streams_without_terminal += end.terminal is None
