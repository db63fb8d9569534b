"""When an edge is ready: it has a catalog, and its bus is not away for long."""

from __future__ import annotations

import anyio

from mcpfleet.bus.bus import Bus
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.process.logs import say_ready
from mcpfleet.process.service import Process


class Readiness:
    """Tells the process's health what an edge needs, and says `ready` once on standard output."""

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
