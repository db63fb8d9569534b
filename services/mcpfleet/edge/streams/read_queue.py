"""The order of an edge's read checks, with bounds for each pool and each caller."""

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
"""Checks of one pool that run at once, so that a pool that hangs holds up no other."""
OF_A_CALLER: Final = 8
"""Checks of one caller among them, so that a caller whose resources hang leaves places to others."""
RENEWING: Final = 8
"""Renewals among them, so that a waiting stream or change finds a place."""
_SEARCHED: Final = 32
"""Renewals that are searched for one whose caller has a place."""

T = TypeVar("T", bound=Hashable)


@dataclass(slots=True, eq=False)
class _Line(Generic[T]):
    """The checks that wait for one pool, and the number that runs."""

    awaited: dict[Hashable, dict[T, None]] = field(default_factory=dict)
    """By callers, in the order of their turns. A stream or a change waits for these checks."""
    renewals: dict[T, Hashable] = field(default_factory=dict)
    running: Counter[Hashable] = field(default_factory=Counter)
    """By callers."""
    renewing: int = 0

    def take(self) -> tuple[T, Hashable, bool] | None:
        """Take the next check: it, its caller, and whether it is a renewal. Return None where none may begin now."""
        if self.running.total() >= AT_ONCE:
            return None
        for caller, waiting in self.awaited.items():
            if self.running[caller] < OF_A_CALLER:
                item = next(iter(waiting))
                del self.awaited[caller], waiting[item]
                if waiting:  # other callers come first
                    self.awaited[caller] = waiting
                return item, caller, False
        if self.renewing < RENEWING:
            for item, caller in islice(self.renewals.items(), _SEARCHED):
                if self.running[caller] < OF_A_CALLER:
                    del self.renewals[item]
                    return item, caller, True
        return None


class ReadQueue(Generic[T]):
    """Performs the checks that are added; a waiting check may be cancelled."""

    def __init__(self, perform: Callable[[T], Awaitable[None]]) -> None:
        """Perform nothing before `run`.

        Args:
            perform: does not raise.
        """
        self._perform = perform
        self._lines: dict[str, _Line[T]] = {}
        self._tasks = TaskOwner()

    def __len__(self) -> int:
        """Return the number of waiting checks."""
        return sum(len(line.renewals) + sum(map(len, line.awaited.values())) for line in self._lines.values())

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the running checks, until cancelled."""
        await self._tasks.run(task_status=task_status)

    def add(self, item: T, pool: str, caller: Hashable, *, renews: bool) -> None:
        """Queue a check that neither waits nor runs."""
        line = self._lines.setdefault(pool, _Line())
        if renews:
            line.renewals[item] = caller
        else:
            line.awaited.setdefault(caller, {})[item] = None
        self._begin(pool, line)

    def hasten(self, item: T, pool: str, caller: Hashable) -> None:
        """Move a waiting renewal before the others: a stream or a change waits for it now."""
        line = self._lines.get(pool)
        if line is not None and line.renewals.pop(item, None) is not None:
            line.awaited.setdefault(caller, {})[item] = None
            self._begin(pool, line)

    def cancel(self, item: T, pool: str, caller: Hashable) -> bool:
        """Remove a waiting check; return False where it runs or is done."""
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
