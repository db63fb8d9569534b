"""Says to each edge which of its calls are here, and hears what it makes of that: both sides then hold the same."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Protocol

import anyio
from anyio.abc import TaskGroup
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.rpc import ask
from mcpfleet.contracts.call import ALIVE, Alive
from mcpfleet.worker.calls.recent_ends import RecentEnds
from mcpfleet.worker.calls.table import Key, Table
from mcpfleet.worker.settings import WorkerSettings


class Holder(Protocol):
    """Who holds the calls."""

    def cancel(self, key: Key) -> None:
        """Cancel a call that its edge does not want."""

    def send_again(self, key: Key) -> None:
        """Send the end of a call again, if it is still kept."""


class Liveness:
    """One question to each edge at every interval; a silent edge holds up no other."""

    def __init__(
        self,
        bus: Bus,
        pool: str,
        settings: WorkerSettings,
        *,
        table: Table,
        ends: RecentEnds,
        holder: Holder,
        log: FilteringBoundLogger,
    ) -> None:
        self._bus = bus
        self._pool = pool
        self._settings = settings
        self._table = table
        self._ends = ends
        self._holder = holder
        self._log = log
        self._heard: dict[str, float] = {}
        self._asking: set[str] = set()

    async def run(self) -> None:
        """Go on until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                await anyio.sleep(self._settings.alive_interval)
                self._tell_all(tasks)

    def _tell_all(self, tasks: TaskGroup) -> None:
        since = self._bus.proven_since
        if since is None:
            return  # silence counts only while our own link is proven
        # An end that was kept before an outage counts from when it was over: its edge could not ask meanwhile.
        self._ends.forget_before(time.monotonic() - self._settings.end_kept, since)
        calls: defaultdict[str, list[str]] = defaultdict(list)
        for held in self._table.all():
            if not held.is_cancelled:
                calls[held.key.edge].append(held.key.call)
        edges = calls.keys() | self._ends.edges()
        self._heard = {edge: heard for edge, heard in self._heard.items() if edge in edges}
        for edge in edges - self._asking:
            self._asking.add(edge)
            tasks.start_soon(self._tell, edge, tuple(calls[edge]))

    async def _tell(self, edge: str, calls: tuple[str, ...]) -> None:
        try:
            await self._compare(edge, calls)
        finally:
            self._asking.discard(edge)

    async def _compare(self, edge: str, calls: tuple[str, ...]) -> None:
        heard = self._heard.setdefault(edge, time.monotonic())
        question = Alive(worker=self._bus.process, calls=calls)
        try:
            answer = await ask(
                self._bus, ALIVE, question, timeout=self._settings.alive_interval, edge=edge, pool=self._pool
            )
        except BusError as error:
            if self._bus.silence(heard) > self._settings.lost_after:
                if calls:
                    self._log.warning("edge lost", edge=edge, calls=len(calls), error=str(error))
                for call in calls:
                    self._holder.cancel(Key(edge, call))
            return
        self._heard[edge] = time.monotonic()
        for call in answer.unwanted:
            self._holder.cancel(Key(edge, call))
        for call in answer.missing:
            self._holder.send_again(Key(edge, call))
