"""The calls that a worker holds, and what to do with one that arrives or is cancelled: decisions without I/O."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.worker.progress_rate import ProgressRate

_REMEMBERED: Final = 1024
"""Calls that were cancelled, perhaps before they arrived, and calls that were refused."""
_REMEMBERED_FOR: Final = 15.0


class Key(NamedTuple):
    """Names a call over all edges."""

    edge: str
    call: str


class State(Enum):
    """Where a held call is."""

    QUEUED = auto()
    RUNNING = auto()


@dataclass(slots=True, eq=False)
class Held:
    """A call that this worker has taken and not ended."""

    key: Key
    definition: str
    subject: str
    body: bytes
    deadline: float
    """Monotonic seconds after which nobody waits for the result."""
    trace: TraceContext
    wants_progress: bool
    progress: ProgressRate
    taken: float = field(default_factory=time.monotonic)
    state: State = State.QUEUED
    has_spoken: bool = False
    """A frame was sent, which told the edge that the call is here."""
    is_cancelled: bool = False
    is_task: bool = False
    """It is a durable task, or has become one."""
    outcome_only: bool = False
    """The edge asks whether there is a result, and does not read it."""
    shows: bool = False
    """It clears a task's result for one reader: what goes wrong is no result of the tool (K12)."""


class _Remembered:
    """The newest names, each for a while: longer than a message may be on its way."""

    def __init__(self) -> None:
        self._names: OrderedDict[Key, float] = OrderedDict()

    def __contains__(self, key: Key) -> bool:
        return key in self._names

    def add(self, key: Key) -> None:
        """Remember a name, and forget those that are too old or too many."""
        now = time.monotonic()
        self._names[key] = now
        while len(self._names) > _REMEMBERED or now - next(iter(self._names.values())) > _REMEMBERED_FOR:
            self._names.popitem(last=False)


class Placement(Enum):
    """What becomes of a call that arrives."""

    RUN = auto()
    QUEUE = auto()
    BUSY = auto()
    DROP = auto()
    """It is here already, or its edge has cancelled it before it came."""


class Table:
    """Held calls, within slots and a queue."""

    def __init__(self, *, slots: int, queue: int) -> None:
        self._slots = slots
        self._queue_size = queue
        self._held: dict[Key, Held] = {}
        self._queue: deque[Held] = deque()
        self._running = 0
        self._cancelled = _Remembered()
        self._refused = _Remembered()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def running(self) -> int:
        """Slots in use."""
        return self._running

    def get(self, key: Key) -> Held | None:
        """The held call of this name."""
        return self._held.get(key)

    def all(self) -> list[Held]:
        """Every held call."""
        return list(self._held.values())

    def take(self, held: Held) -> Placement:
        """Decide about a call that arrives, and note it where it stays."""
        if held.key in self._held:
            return Placement.DROP
        if held.key in self._cancelled or held.key in self._refused:
            return Placement.DROP
        if self._running < self._slots:
            self._held[held.key] = held
            self._start(held)
            return Placement.RUN
        if len(self._queue) < self._queue_size:
            self._held[held.key] = held
            self._queue.append(held)
            return Placement.QUEUE
        self._refused.add(held.key)  # its edge is told that it has not run: a doubled message must not run it
        return Placement.BUSY

    def cancel(self, key: Key) -> Held | None:
        """Note a cancel; returns the call whose handler must hear it.

        One that waits is forgotten at once, and one that has not come is dropped when it comes.
        """
        held = self._held.get(key)
        if held is None:
            self._cancelled.add(key)
            return None
        if held.state is State.QUEUED:
            self._queue.remove(held)
            del self._held[key]
            self._cancelled.add(key)
            return None
        held.is_cancelled = True
        return held

    def end(self, held: Held) -> Held | None:
        """Free the slot of a call whose handler has really returned; returns the next call to run."""
        del self._held[held.key]
        self._running -= 1
        if held.is_cancelled:
            self._cancelled.add(held.key)  # a doubled message of it must not run it again
        return self._next()

    def _next(self) -> Held | None:
        """The first call that waits, if there is a slot for it."""
        if not self._queue or self._running >= self._slots:
            return None
        following = self._queue.popleft()
        self._start(following)
        return following

    @property
    def free(self) -> int:
        """Slots that nothing runs in."""
        return max(0, self._slots - self._running)

    def occupy(self) -> None:
        """Take a slot for what is no call."""
        self._running += 1

    def vacate(self) -> Held | None:
        """Free it; returns the next call to run."""
        self._running -= 1
        return self._next()

    def hand_over(self, held: Held) -> None:
        """Hold a call no more whose handler goes on in its slot."""
        del self._held[held.key]
        self._cancelled.add(held.key)  # a doubled message of it must not run it again

    def _start(self, held: Held) -> None:
        held.state = State.RUNNING
        self._running += 1
