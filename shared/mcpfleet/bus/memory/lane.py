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
    """Loop time; not before it the step goes on."""
    number: int
    size: int
    act: Callable[[], None]


class Lane:
    """Acts never run in the call that puts them in, and run in the context of who made the lane."""

    def __init__(self, is_open: Callable[[], bool]) -> None:
        """Make a lane on the running loop.

        Args:
            is_open: says whether anything goes on now; where it changes to yes, `go_on` is called.
        """
        self.size = 0
        """Bytes that are in the lane."""
        self._is_open = is_open
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._steps: list[_Step] = []
        self._numbers = itertools.count()
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0

    def put(self, act: Callable[[], None], *, size: int = 0, due: float | None = None) -> None:
        """Have something done at once or at a time (loop time), after what was put in before for that time."""
        due = self._loop.time() if due is None else due
        heapq.heappush(self._steps, _Step(due, next(self._numbers), size, act))
        self.size += size
        self.go_on()

    def put_last(self, act: Callable[[], None]) -> None:
        """Have something done after all that is in the lane now."""
        self.put(act, due=max((step.due for step in self._steps), default=None))

    def clear(self) -> None:
        """Forget what is in the lane."""
        self._steps.clear()
        self.size = 0

    def go_on(self) -> None:
        """Go on, if there is anything and the lane is open."""
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
            # As many as there are now: what they put in gets its turn after the loop's other work.
            for _ in range(len(self._steps)):
                if not self._steps or not self._is_open() or self._steps[0].due > self._loop.time():
                    return
                step = heapq.heappop(self._steps)
                self.size -= step.size
                step.act()
        finally:
            self.go_on()
