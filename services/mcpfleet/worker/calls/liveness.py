"""Compares held calls with each edge at every interval, so that both sides hold the same calls."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from mcpfleet.bus.errors import BusError
from mcpfleet.bus.rpc import ask
from mcpfleet.contracts.call import ALIVE, Alive
from mcpfleet.worker.bus_side import BusSide
from mcpfleet.worker.calls.recent_ends import RecentEnds
from mcpfleet.worker.calls.table import Table
from mcpfleet.worker.work import CallKey


class CallHolder(Protocol):
    """Does what the comparison shows to be missing."""

    def cancel(self, key: CallKey) -> None:
        """Cancel a call that its edge does not want."""

    def send_again(self, key: CallKey) -> None:
        """Send the end of a call again, if it is still kept."""


class Liveness:
    """Asks each edge one question at every interval; a silent edge holds up no other."""

    def __init__(self, side: BusSide, *, table: Table, ends: RecentEnds, holder: CallHolder) -> None:
        """Ask nothing yet.

        Args:
            side: the worker's bus, and its intervals.
            table: the held calls.
            ends: the newest ends.
            holder: cancels calls, and sends ends again.
        """
        self._side = side
        self._settings = side.settings
        self._table = table
        self._ends = ends
        self._holder = holder
        self._heard: dict[str, float] = {}
        """When each edge answered last (monotonic)."""
        self._asking: set[str] = set()

    async def run(self) -> None:
        """Compare at every interval until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                await anyio.sleep(self._settings.alive_interval)
                self._ask_all(tasks)

    def _ask_all(self, tasks: TaskGroup) -> None:
        since = self._side.bus.proven_since
        if since is None:
            return  # silence counts only while our own link is proven
        # An end that was kept before an outage counts from the end of the outage: its edge could not ask meanwhile.
        self._ends.forget_before(time.monotonic() - self._settings.end_kept, since)
        calls: defaultdict[str, list[str]] = defaultdict(list)
        for call in self._table.all():
            if not call.is_cancelled:
                calls[call.key.edge].append(call.key.call)
        edges = calls.keys() | self._ends.edges()
        self._heard = {edge: heard for edge, heard in self._heard.items() if edge in edges}
        for edge in edges - self._asking:
            self._asking.add(edge)
            tasks.start_soon(self._ask, edge, tuple(calls[edge]))

    async def _ask(self, edge: str, calls: tuple[str, ...]) -> None:
        try:
            await self._compare(edge, calls)
        finally:
            self._asking.discard(edge)

    async def _compare(self, edge: str, calls: tuple[str, ...]) -> None:
        bus, interval = self._side.bus, self._settings.alive_interval
        heard = self._heard.setdefault(edge, time.monotonic())
        question = Alive(worker=bus.process, calls=calls)
        try:
            answer = await ask(bus, ALIVE, question, timeout=interval, edge=edge, pool=self._side.pool)
        except BusError as error:
            if bus.silence(heard) > self._settings.lost_after:
                if calls:
                    self._side.log.warning("edge lost", edge=edge, calls=len(calls), error=str(error))
                for call in calls:
                    self._holder.cancel(CallKey(edge, call))
            return
        self._heard[edge] = time.monotonic()
        for call in answer.unwanted:
            self._holder.cancel(CallKey(edge, call))
        for call in answer.missing:
            self._holder.send_again(CallKey(edge, call))
