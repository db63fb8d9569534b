"""One direction of a link on the in-memory switch: its steps go on in order, each at its time, while it is open."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
from collections.abc import Callable
from typing import NamedTuple


class _Step(NamedTuple):
    due: float
    """Loop time before which the step waits."""
    number: int
    size: int
    act: Callable[[], None]


class Lane:
    """Runs acts in order, each later than the call that puts it in, in the context of the lane's maker."""

    def __init__(self, is_open: Callable[[], bool]) -> None:
        """Make a lane on the running loop.

        Args:
            is_open: returns whether acts may run now; call `go_on` when it changes to yes.
        """
        self.size = 0
        """Bytes in the lane."""
        self._is_open = is_open
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._steps: list[_Step] = []
        self._numbers = itertools.count()
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0

    def put(self, act: Callable[[], None], *, size: int = 0, due: float | None = None) -> None:
        """Run an act now or at a time (loop time), after the earlier ones for that time."""
        due = self._loop.time() if due is None else due
        heapq.heappush(self._steps, _Step(due, next(self._numbers), size, act))
        self.size += size
        self.go_on()

    def put_last(self, act: Callable[[], None]) -> None:
        """Run an act after everything that is in the lane now."""
        self.put(act, due=max((step.due for step in self._steps), default=None))

    def clear(self) -> None:
        """Drop everything in the lane."""
        self._steps.clear()
        self.size = 0

    def go_on(self) -> None:
        """Run the next acts, if the lane is open."""
        if not self._steps or not self._is_open():
            return
        due = self._steps[0].due
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        if due <= self._loop.time():
            self._timer = self._loop.call_soon(self._run, context=self._context)
        else:
            self._timer = self._loop.call_at(due, self._run, context=self._context)

    def _run(self) -> None:
        self._timer = None
        try:
            # Only those that are there now: acts that they put in run after the loop's other work.
            for _ in range(len(self._steps)):
                if not self._steps or not self._is_open() or self._steps[0].due > self._loop.time():
                    return
                step = heapq.heappop(self._steps)
                self.size -= step.size
                step.act()
        finally:
            self.go_on()
