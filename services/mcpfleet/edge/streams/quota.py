"""Counts this edge's streams with the fleet's: a partition has so many of them at an endpoint, on whichever edges."""

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
"""Seconds in which several closings become one message."""
_PACE: Final = 0.2
"""Seconds between two messages: where thousands of streams end, each message is a transaction that costs their ends."""
_RETRY: Final = 1.0

Key = tuple[str, str]
"""An endpoint, and the key of a partition."""


@dataclass(slots=True, eq=False)
class _Ticket:
    """A stream that waits to be counted."""

    outcome: bool | BusError | None = None
    is_alone: bool = False
    """With others it did not fit."""


@dataclass(slots=True, eq=False)
class _Line:
    """Those that wait for one partition at one endpoint."""

    turn: anyio.Lock = field(default_factory=anyio.Lock)
    waiting: dict[_Ticket, None] = field(default_factory=dict)
    asked: frozenset[_Ticket] = frozenset()
    """Those of them that are being asked for: they may have been counted in already."""


class Quota:
    """Asks before a stream opens, and says when streams have closed. Whoever has no partition is not counted (D7)."""

    def __init__(self, client: SubscriptionsClient, edge: str, *, interval: float, log: FilteringBoundLogger) -> None:
        """Count nothing yet.

        Args:
            client: of subscriptions.
            edge: this process's id.
            interval: seconds between two leases.
            log: for what an operator should know.
        """
        self._client = client
        self._edge = edge
        self._interval = interval
        self._log = log
        self._sequence = count(1)
        self._streams: Counter[Key] = Counter()
        self._lines: dict[Key, _Line] = {}
        self._untold: set[Key] = set()
        """Of which subscriptions may have another number."""
        self._has_news = anyio.Event()
        self._is_known = False
        """Something was said to subscriptions, so that it has a row of this edge."""

    async def open(self, endpoint: str, partition: str | None) -> bool:
        """Ask for a place among the partition's; where it is granted, `close` gives it back.

        Raises:
            BusError: nobody could be asked; no place is taken.
        """
        if partition is None:
            return True
        key = endpoint, partition_key(partition)
        self._streams[key] += 1
        self._is_known = True
        granted = False
        try:
            granted = await self._ask(key)
        finally:
            if not granted:
                self._forget(key)
        return granted

    async def _ask(self, key: Key) -> bool:
        """Ask by one question for all that came while the last one was under way, since a question is a transaction."""
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

    async def _ask_for(self, key: Key, line: _Line, asked: list[_Ticket]) -> None:
        """Ask whether all of these fit; where they do not, each is asked for by itself next."""
        count = Count(endpoint=key[0], partition=key[1], streams=self._streams[key] - len(line.waiting) + len(asked))
        outcome: bool | BusError
        line.asked = frozenset(asked)
        try:
            outcome = await self._client.open(OpenStream(edge=self._edge, sequence=next(self._sequence), count=count))
        except BusError as error:
            outcome = error
        finally:
            line.asked = frozenset()
        for ticket in asked:
            if outcome is False and len(asked) > 1:
                ticket.is_alone = True
            else:
                ticket.outcome = outcome
                line.waiting.pop(ticket, None)

    def close(self, endpoint: str, partition: str | None) -> None:
        """Give a place back; subscriptions hears of it soon."""
        if partition is not None:
            self._forget((endpoint, partition_key(partition)))

    def _forget(self, key: Key) -> None:
        self._streams[key] -= 1
        if self._streams[key] <= 0:
            del self._streams[key]
        self._untold.add(key)
        self._has_news.set()

    def _count(self, key: Key) -> Count:
        """Count the streams that there are, or may be: who has yet to be asked for keeps nobody else out."""
        line, streams = self._lines.get(key), self._streams.get(key, 0)
        if line is not None:
            streams -= len(line.waiting.keys() - line.asked)
        return Count(endpoint=key[0], partition=key[1], streams=streams)

    async def run(self) -> None:
        """Tell what has closed, and that this edge lives, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._tell_closed)
            tasks.start_soon(self._lease)

    async def _tell_closed(self) -> None:
        told = -math.inf
        while True:
            await self._has_news.wait()
            await anyio.sleep(max(_SETTLES, told + _PACE - time.monotonic()))
            told = time.monotonic()
            self._has_news = anyio.Event()
            while self._untold:
                if not await self._tell_some():
                    await anyio.sleep(_RETRY * random.uniform(0.5, 1.5))  # noqa: S311  # no secret

    async def _tell_some(self) -> bool:
        told = [self._untold.pop() for _ in range(min(MOST_COUNTS, len(self._untold)))]
        sequence = next(self._sequence)
        counts = tuple(map(self._count, told))
        try:
            await self._client.close(CloseStreams(edge=self._edge, sequence=sequence, counts=counts))
        except BusError as error:
            self._untold.update(told)
            self._log.debug("subscriptions does not know what has closed", error=str(error))
            return False
        return True

    async def _lease(self) -> None:
        """Keep what is counted for this edge; without it, it would be forgotten as that of a dead one."""
        while True:
            await anyio.sleep(self._interval * random.uniform(0.8, 1.2))  # noqa: S311  # no secret
            if not self._is_known:
                continue
            try:
                if await self._client.lease(self._edge):
                    self._untold.update(self._streams)
                    self._has_news.set()
            except BusError as error:
                self._log.warning("subscriptions does not answer", error=str(error))
