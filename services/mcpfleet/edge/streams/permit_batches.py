"""Gathers the questions to permits, so that one change of a popular resource costs a few messages (X50, X51)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, TypeVar

import anyio
from anyio.abc import TaskStatus

from mcpfleet.contracts.permits import MOST_ASKED
from mcpfleet.process.task_owner import TaskOwner

_GATHERED_FOR: Final = 0.003
"""Seconds for which the first question waits for others."""
_AT_ONCE: Final = 4
"""Messages about one definition that are on their way at once."""

T = TypeVar("T", bound=Hashable)
K = TypeVar("K", bound=Hashable)


@dataclass(slots=True, eq=False)
class _Line(Generic[T]):
    waiting: dict[T, None] = field(default_factory=dict)
    running: int = 0


class PermitBatches(Generic[K, T]):
    """Performs what is added together, by keys; what waits may be cancelled."""

    def __init__(self, perform: Callable[[K, list[T]], Awaitable[None]]) -> None:
        """Perform nothing before `run`.

        Args:
            perform: takes a key and at most 256 items; it does not raise.
        """
        self._perform = perform
        self._lines: dict[K, _Line[T]] = {}
        self._tasks = TaskOwner()

    def __len__(self) -> int:
        """Return the number of waiting items."""
        return sum(len(line.waiting) for line in self._lines.values())

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the running batches, until cancelled."""
        await self._tasks.run(task_status=task_status)

    def add(self, key: K, item: T) -> None:
        """Have an item performed soon."""
        line = self._lines.setdefault(key, _Line())
        line.waiting[item] = None
        if line.running < _AT_ONCE and self._tasks.start(self._run, key, line):
            line.running += 1

    def cancel(self, item: T) -> bool:
        """Remove an item that waits; return False where it is on its way or done."""
        return any(line.waiting.pop(item, self) is None for line in self._lines.values())

    async def _run(self, key: K, line: _Line[T]) -> None:
        try:
            await anyio.sleep(_GATHERED_FOR)
            while line.waiting:
                batch = list(islice(line.waiting, MOST_ASKED))
                for item in batch:
                    del line.waiting[item]
                await self._perform(key, batch)
        finally:
            line.running -= 1
            if not line.running and not line.waiting and self._lines.get(key) is line:
                del self._lines[key]
