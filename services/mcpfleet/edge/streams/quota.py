"""Counts this edge's streams for the fleet: a partition may have a number of them at an endpoint, on all edges."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.subscriptions import (
    MOST_COUNTS,
    CloseStreams,
    Count,
    OpenStream,
    SubscriptionsClient,
    partition_key,
)

_SETTLES: Final = 0.05
"""Seconds in which closed streams gather for one message."""
_PACE: Final = 0.2
"""Seconds between two such messages, since each one is a transaction."""
_RETRY: Final = 1.0
"""Seconds after which an unanswered message is sent again."""

Key = tuple[str, str]
"""An endpoint's name, and a partition's key."""


@dataclass(slots=True, eq=False)
class _Ticket:
    """A stream that waits for its place in the count."""

    outcome: bool | BusError | None = None
    is_alone: bool = False
    """It did not fit together with others, so it is asked for alone."""


@dataclass(slots=True, eq=False)
class _Line:
    """The streams that wait for one partition at one endpoint."""

    turn: anyio.Lock = field(default_factory=anyio.Lock)
    waiting: dict[_Ticket, None] = field(default_factory=dict)
    pending: frozenset[_Ticket] = frozenset()
    """Those in the current question, which may have been counted already."""


class Quota:
    """Asks subscriptions before a stream opens, and reports closed streams. Anonymous callers are not counted (D7)."""

    def __init__(self, client: SubscriptionsClient, edge: str, *, interval: float, log: FilteringBoundLogger) -> None:
        """Begin without streams.

        Args:
            client: of subscriptions.
            edge: this process's id.
            interval: seconds between two lease renewals.
            log: reports a silent service.
        """
        self._client = client
        self._edge = edge
        self._interval = interval
        self._log = log
        self._sequence = count(1)
        self._streams: Counter[Key] = Counter()
        self._lines: dict[Key, _Line] = {}
        self._unreported: set[Key] = set()
        """The keys whose number subscriptions may not have."""
        self._has_closed = anyio.Event()
        self._is_counted = False
        """Subscriptions may have a row for this edge, which needs a lease."""

    async def open(self, endpoint: str, partition: str | None) -> bool:
        """Ask for a place in a partition's quota; return False where it is full. `close` gives a place back.

        Raises:
            BusError: subscriptions did not answer; no place is taken.
        """
        if partition is None:
            return True
        key = endpoint, partition_key(partition)
        self._streams[key] += 1
        self._is_counted = True
        granted = False
        try:
            granted = await self._ask(key)
        finally:
            if not granted:
                self._forget(key)
        return granted

    async def _ask(self, key: Key) -> bool:
        """Ask in one question for all streams that came during the last question, since each one is a transaction."""
        line, mine = self._lines.setdefault(key, _Line()), _Ticket()
        line.waiting[mine] = None
        try:
            async with line.turn:
                while mine.outcome is None:
                    together = [each for each in line.waiting if not each.is_alone]
                    await self._ask_for(key, line, [mine] if mine.is_alone else together)
        finally:
            line.waiting.pop(mine, None)
            if not line.waiting:
                self._lines.pop(key, None)
        if isinstance(mine.outcome, BusError):
            raise mine.outcome
        return mine.outcome

    async def _ask_for(self, key: Key, line: _Line, tickets: list[_Ticket]) -> None:
        """Ask whether all these streams fit; where they do not, each is asked for alone next."""
        count = Count(endpoint=key[0], partition=key[1], streams=self._streams[key] - len(line.waiting) + len(tickets))
        outcome: bool | BusError
        line.pending = frozenset(tickets)
        try:
            outcome = await self._client.open(OpenStream(edge=self._edge, sequence=next(self._sequence), count=count))
        except BusError as error:
            outcome = error
        finally:
            line.pending = frozenset()
        for ticket in tickets:
            if outcome is False and len(tickets) > 1:
                ticket.is_alone = True
            else:
                ticket.outcome = outcome
                line.waiting.pop(ticket, None)

    def close(self, endpoint: str, partition: str | None) -> None:
        """Give a place back; subscriptions is told soon."""
        if partition is not None:
            self._forget((endpoint, partition_key(partition)))

    def _forget(self, key: Key) -> None:
        self._streams[key] -= 1
        if self._streams[key] <= 0:
            del self._streams[key]
        self._unreported.add(key)
        self._has_closed.set()

    def _count(self, key: Key) -> Count:
        """Count the open streams, and those in the current question; streams that still wait do not count."""
        line, streams = self._lines.get(key), self._streams.get(key, 0)
        if line is not None:
            streams -= len(line.waiting.keys() - line.pending)
        return Count(endpoint=key[0], partition=key[1], streams=streams)

    async def run(self) -> None:
        """Report closed streams, and renew this edge's lease, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._report_closed)
            tasks.start_soon(self._renew_lease)

    async def _report_closed(self) -> None:
        sent_at = -math.inf
        while True:
            await self._has_closed.wait()
            await anyio.sleep(max(_SETTLES, sent_at + _PACE - time.monotonic()))
            sent_at = time.monotonic()
            self._has_closed = anyio.Event()
            while self._unreported:
                if not await self._report_some():
                    await anyio.sleep(_RETRY * random.uniform(0.5, 1.5))  # noqa: S311  # no secret

    async def _report_some(self) -> bool:
        keys = [self._unreported.pop() for _ in range(min(MOST_COUNTS, len(self._unreported)))]
        sequence = next(self._sequence)
        counts = tuple(map(self._count, keys))
        try:
            await self._client.close(CloseStreams(edge=self._edge, sequence=sequence, counts=counts))
        except BusError as error:
            self._unreported.update(keys)
            self._log.debug("closed streams not reported", error=str(error))
            return False
        return True

    async def _renew_lease(self) -> None:
        """Renew this edge's lease; without it, subscriptions removes the counts as those of a dead edge."""
        while True:
            await anyio.sleep(self._interval * random.uniform(0.8, 1.2))  # noqa: S311  # no secret
            if not self._is_counted:
                continue
            try:
                if await self._client.lease(self._edge):
                    self._unreported.update(self._streams)
                    self._has_closed.set()
            except BusError as error:
                self._log.warning("stream lease not renewed", error=str(error))
