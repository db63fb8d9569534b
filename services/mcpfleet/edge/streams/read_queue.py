"""The order in which an edge asks resources whether listeners may read them: bounded for each pool and each caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, TypeVar

import anyio
from anyio.abc import TaskStatus

from mcpfleet.process.task_owner import TaskOwner

AT_ONCE: Final = 16
"""Readings of a pool that an edge has under way at once: a pool that hangs holds up no other."""
OF_A_CALLER: Final = 8
"""Readings of one caller among them: a caller whose resources hang leaves places to others."""
RENEWING: Final = 8
"""Renewals among them: a stream or a change that waits finds a place."""
_LOOKS: Final = 32
"""Renewals that are looked through for one whose caller has a place."""

T = TypeVar("T", bound=Hashable)


@dataclass(slots=True, eq=False)
class _Line(Generic[T]):
    """The readings that wait for one pool, and how many are under way."""

    awaited: dict[Hashable, dict[T, None]] = field(default_factory=dict)
    """By their callers, in the order of their turns: a stream or a change waits for these."""
    renewals: dict[T, Hashable] = field(default_factory=dict)
    running: Counter[Hashable] = field(default_factory=Counter)
    """By their callers."""
    renewing: int = 0

    def take(self) -> tuple[T, Hashable, bool] | None:
        """Take the next one out: it, its caller, and whether it is a renewal; none where none may begin now."""
        if self.running.total() >= AT_ONCE:
            return None
        for caller, waiting in self.awaited.items():
            if self.running[caller] < OF_A_CALLER:
                item = next(iter(waiting))
                del self.awaited[caller], waiting[item]
                if waiting:  # the others' turn comes first
                    self.awaited[caller] = waiting
                return item, caller, False
        if self.renewing < RENEWING:
            for item, caller in islice(self.renewals.items(), _LOOKS):
                if self.running[caller] < OF_A_CALLER:
                    del self.renewals[item]
                    return item, caller, True
        return None


class ReadQueue(Generic[T]):
    """Performs what is added, each thing once at a time; what waits may be taken back."""

    def __init__(self, perform: Callable[[T], Awaitable[None]]) -> None:
        """Perform nothing before `run`.

        Args:
            perform: does not raise.
        """
        self._perform = perform
        self._lines: dict[str, _Line[T]] = {}
        self._tasks = TaskOwner()

    def __len__(self) -> int:
        """How many wait."""
        return sum(len(line.renewals) + sum(map(len, line.awaited.values())) for line in self._lines.values())

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own what is under way, until cancelled."""
        await self._tasks.run(task_status=task_status)

    def add(self, item: T, pool: str, caller: Hashable, *, renews: bool) -> None:
        """Have something performed in its turn, that neither waits nor is under way."""
        line = self._lines.setdefault(pool, _Line())
        if renews:
            line.renewals[item] = caller
        else:
            line.awaited.setdefault(caller, {})[item] = None
        self._begin(pool, line)

    def hasten(self, item: T, pool: str, caller: Hashable) -> None:
        """Let what waits as a renewal go before the others: somebody waits for it now."""
        line = self._lines.get(pool)
        if line is not None and line.renewals.pop(item, None) is not None:
            line.awaited.setdefault(caller, {})[item] = None
            self._begin(pool, line)

    def take_back(self, item: T, pool: str, caller: Hashable) -> bool:
        """Perform it not; false where it does not wait, as it is under way or done."""
        line = self._lines.get(pool)
        if line is None:
            return False
        waiting = line.awaited.get(caller, {})
        was_there = item in line.renewals or item in waiting
        line.renewals.pop(item, None)
        waiting.pop(item, None)
        if not waiting:
            line.awaited.pop(caller, None)
        self._forget_empty(pool, line)
        return was_there

    def _begin(self, pool: str, line: _Line[T]) -> None:
        while self._tasks.is_running and (taken := line.take()) is not None:
            item, caller, renews = taken
            line.running[caller] += 1
            line.renewing += renews
            self._tasks.start(self._run, pool, item, caller, renews)

    async def _run(self, pool: str, item: T, caller: Hashable, renews: bool) -> None:
        line = self._lines[pool]
        try:
            await self._perform(item)
        finally:
            line.renewing -= renews
            line.running[caller] -= 1
            if not line.running[caller]:
                del line.running[caller]
            self._begin(pool, line)
            self._forget_empty(pool, line)

    def _forget_empty(self, pool: str, line: _Line[T]) -> None:
        if not line.running and not line.awaited and not line.renewals:
            self._lines.pop(pool, None)
