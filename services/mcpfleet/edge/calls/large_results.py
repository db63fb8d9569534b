"""Results that are too large for a frame: fetched from their worker by one request, when there is room for them.

Pushed as they come, a few of them would fill the edge's socket faster than it reads, and NATS would cut it off.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.call import Pull, pull_subject
from mcpfleet.edge.calls.in_flight import Remote
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.memory_budget import BudgetExhausted, MemoryBudget


class ResultLost(Exception):
    """Raised when a call has ended, and its result could not be fetched."""


class LargeResults:
    """Fetches results."""

    def __init__(self, bus: Bus, budget: MemoryBudget, settings: EdgeSettings) -> None:
        """Prepare to fetch results.

        Args:
            bus: the edge's.
            budget: the memory that results share.
            settings: the edge's: the largest result, whatever a worker says, and how long one may take.
        """
        self._bus = bus
        self._budget = budget
        self._settings = settings

    @asynccontextmanager
    async def fetched(self, remote: Remote) -> AsyncIterator[bytes]:
        """Fetch a result, and hold its memory for the length of a block.

        Raises:
            ResultLost: there was no memory in time, or its worker does not have it any more.
        """
        if remote.size > self._settings.result_limit:
            raise ResultLost(f"a result of {remote.size} bytes is over the limit (MCPFLEET_RESULT_LIMIT)")
        try:
            async with self._budget.hold(remote.size, within=self._settings.result_wait):
                yield await self._fetch(remote)
        except BudgetExhausted as error:
            raise ResultLost(str(error)) from error

    async def _fetch(self, remote: Remote) -> bytes:
        question = Pull(edge=self._bus.process, call=remote.call).model_dump_json().encode()
        try:
            reply = await self._bus.request(
                pull_subject(remote.pool, remote.worker), question, timeout=self._settings.result_fetch, repeat=True
            )
        except BusError as error:
            raise ResultLost(str(error)) from error
        if len(reply.body) != remote.size:
            raise ResultLost(f"a result of {remote.size} bytes came with {len(reply.body)}")
        return reply.body
