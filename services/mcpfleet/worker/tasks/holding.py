"""The tasks that a worker holds, as the bus's side knows them: what is due for each, decided without I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.worker.table import Key

NO_EDGE: Final = ""
"""Stands where a call's key has its edge: no edge has this name."""


def holding_key(task: str, fence: int) -> Key:
    """Name one holding of a task among calls: taken again, it is another one."""
    return Key(NO_EDGE, f"{task}.{fence}")


@dataclass(slots=True, eq=False)
class Holding:
    """A task from its claim until its end is written, it is given back, or lost."""

    id: str
    fence: int
    definition: str
    extended: float
    """Monotonic seconds at which the newest lease was asked for."""
    trace: TraceContext | None = None
    """Of the call that made it; what is written of the task is part of that."""
    alone: bool = False
    message: str | None = None
    """The newest status message that is not written."""
    is_cancelled: bool = False
    """Its client wants it to end."""
    is_stopped: bool = False
    """Its run was told to end, since the worker leaves."""
    is_lost: bool = False
    """It is another's, or has ended: nothing is written for it any more."""
    has_returned: bool = False
    """Its handler has really returned, and its slot is free."""

    @property
    def key(self) -> Key:
        """Names it on the handlers' side."""
        return holding_key(self.id, self.fence)


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
