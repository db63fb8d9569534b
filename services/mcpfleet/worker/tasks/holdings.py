"""The tasks that a worker holds, as the bus's side knows them: what is due for each, decided without I/O."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.worker.calls.table import Key

NO_EDGE: Final = ""
"""Stands where a call's key has its edge: no edge has this name."""


def holding_key(task: str, fence: int) -> Key:
    """Name one holding of a task among calls: taken again, it is another one."""
    return Key(NO_EDGE, f"{task}.{fence}")


_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
_SURE: Final = 0.5
"""The part of a lease within which its holder is sure of it: the rest is for what it is about to begin."""


def elapsed() -> float:
    """Seconds by a clock that also runs while this process is stopped, or its machine sleeps, where there is one."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


@dataclass(slots=True, eq=False)
class Holding:
    """A task from its claim until its end is written, it is given back, or lost."""

    id: str
    fence: int
    definition: str
    extended: float
    """When the newest lease that was confirmed was asked for, by `elapsed`."""
    lease: float = 0.0
    """Seconds that it lasts from then on, at least."""
    trace: TraceContext | None = None
    """Of the call that made it; what is written of the task is part of that."""
    alone: bool = False
    message: str | None = None
    """The newest status message that is not written."""
    progress: float | None = None
    """The progress that it tells."""
    is_cancelled: bool = False
    """Its client wants it to end."""
    is_stopped: bool = False
    """Its run was told to end, since the worker leaves."""
    is_lost: bool = False
    """It is another's, or has ended: nothing is written for it any more."""
    is_refused: bool = False
    """Its lease was not renewed: it is not asked for again."""
    deciding: int = 0
    """Messages on their way that may end the holding: their own answers alone say what became of the task."""
    has_returned: bool = False
    """Its handler has really returned, and its slot is free."""

    @property
    def key(self) -> Key:
        """Names it on the handlers' side."""
        return holding_key(self.id, self.fence)

    @property
    def is_renewed(self) -> bool:
        """Whether its lease is to be renewed."""
        return not self.is_lost and not self.is_refused

    @property
    def is_deciding(self) -> bool:
        """Whether such a message is on its way."""
        return self.deciding > 0

    @property
    def is_sure(self) -> bool:
        """Whether the lease was confirmed so lately that nobody else can have the task (K26)."""
        return not self.is_lost and elapsed() - self.extended < self.lease * _SURE

    def say(self, message: str, progress: float | None) -> None:
        """Keep a status message until it is written; one that says less than another that waits is dropped."""
        if progress is None or self.progress is None or progress >= self.progress:
            self.message, self.progress = message, progress


@dataclass(slots=True)
class Holdings:
    """All that are held."""

    _held: dict[Key, Holding] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Holding]:
        return iter(list(self._held.values()))

    def add(self, holding: Holding) -> None:
        """Hold it."""
        self._held[holding.key] = holding

    def get(self, key: Key) -> Holding | None:
        """The holding of this name."""
        return self._held.get(key)

    def drop(self, holding: Holding) -> None:
        """Hold it no more."""
        self._held.pop(holding.key, None)

    @property
    def running(self) -> int:
        """How many take a slot."""
        return sum(not each.has_returned for each in self)

    @property
    def has_alone(self) -> bool:
        """Whether one runs beside which nothing else may."""
        return any(each.alone and not each.has_returned for each in self)

    def room(self, *, free: int, most: int, waits_alone: bool) -> int:
        """How many more to claim.

        Args:
            free: slots that nothing runs in.
            most: slots that tasks may take.
            waits_alone: a task waits for a worker that runs no other.
        """
        if self.has_alone or (waits_alone and self._held):
            return 0
        return max(0, min(free, most - self.running))
