"""The tasks that a worker holds, as the bus's side knows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from structlog.typing import FilteringBoundLogger

from mcpfleet.telemetry.trace import TraceContext, current
from mcpfleet.worker.work import TaskKey

_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
_SURE: Final = 0.5
"""The part of a lease within which its holder is sure of it; the rest is for what the holder is about to begin."""


def elapsed() -> float:
    """Seconds by a clock that also runs while this process is stopped, or its machine sleeps, if there is one."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


@dataclass(slots=True, eq=False)
class Holding:
    """A task from its claim until its end is written, it is given back, or it is lost."""

    id: str
    fence: int
    definition: str
    extended: float
    """When the newest confirmed lease was asked for, by `elapsed`."""
    lease: float = 0.0
    """Seconds that the lease lasts from then on, at least."""
    trace: TraceContext | None = None
    """The trace of the call that made it; all writes for the task are part of that."""
    alone: bool = False
    """No other task may run beside it."""
    message: str | None = None
    """The newest status message that is not written."""
    progress: float | None = None
    """The progress that the message tells."""
    is_cancelled: bool = False
    """Its client wants it to end."""
    is_stopped: bool = False
    """Its run was told to end, since the worker leaves."""
    is_lost: bool = False
    """Another worker has it, or it has ended: nothing is written for it any more."""
    is_refused: bool = False
    """Its lease was not renewed: it is not asked for again."""
    deciding: int = 0
    """Messages on their way that may end the holding: their own answers alone say what became of the task."""
    has_returned: bool = False
    """Its handler has returned, and its slot is free."""
    held_since: float = field(default_factory=time.monotonic)

    @property
    def key(self) -> TaskKey:
        """Names it on the handlers' loop."""
        return TaskKey(self.id, self.fence)

    @property
    def is_renewed(self) -> bool:
        """Whether its lease must be renewed."""
        return not self.is_lost and not self.is_refused

    @property
    def is_deciding(self) -> bool:
        """Whether a message is on its way that may end the holding."""
        return self.deciding > 0

    @property
    def is_sure(self) -> bool:
        """Whether the lease was confirmed so lately that nobody else can have the task (K26)."""
        return not self.is_lost and elapsed() - self.extended < self.lease * _SURE

    def report(self, message: str, progress: float) -> None:
        """Keep a status message until it is written. Drop one that tells less progress than one that waits."""
        if self.progress is None or progress >= self.progress:
            self.message, self.progress = message, progress

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Make its trace the current one for a block."""
        outer = current.get()
        current.set(self.trace)
        try:
            yield
        finally:
            current.set(outer)


class Holdings:
    """All tasks that are held. It stops the runs of tasks that are lost or cancelled."""

    def __init__(self, stop: Callable[[TaskKey], None], log: FilteringBoundLogger) -> None:
        """Hold nothing yet.

        Args:
            stop: tells the handlers' loop to cancel the run of a task.
            log: gets a line for each task that is lost.
        """
        self._stop = stop
        self._log = log
        self._held: dict[TaskKey, Holding] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Holding]:
        return iter(list(self._held.values()))

    def add(self, holding: Holding) -> None:
        """Hold a task."""
        self._held[holding.key] = holding

    def get(self, key: TaskKey) -> Holding | None:
        """The holding of this key; on any thread."""
        return self._held.get(key)

    def drop(self, holding: Holding) -> None:
        """Hold a task no more."""
        self._held.pop(holding.key, None)

    def lose(self, holding: Holding, why: str) -> None:
        """Stop a task that is not ours any more, and write nothing more for it."""
        if holding.is_lost:
            return
        self._log.warning("task lost", task=holding.id, why=why)
        holding.is_lost = True
        self.stop(holding)

    def cancel(self, holding: Holding) -> None:
        """End a task's run, since its client wants that."""
        if not holding.is_cancelled:
            holding.is_cancelled = True
            self.stop(holding)

    def stop(self, holding: Holding) -> None:
        """Cancel a task's run, unless its handler has returned."""
        if not holding.has_returned:
            self._stop(holding.key)

    def count_claimable(self, *, free: int, most: int, waits_alone: bool) -> int:
        """How many more tasks may be claimed.

        Args:
            free: slots that nothing runs in.
            most: slots that tasks may take.
            waits_alone: a task waits for a worker that runs no other.
        """
        running = [each for each in self._held.values() if not each.has_returned]
        if (waits_alone and self._held) or any(each.alone for each in running):
            return 0
        return max(0, min(free, most - len(running)))
