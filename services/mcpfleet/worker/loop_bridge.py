"""The way between two event loops on two threads: values in order, one wake-up for a burst."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LoopBridge(Generic[Value]):
    """Carries values into a loop, where `act` takes each; `put` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, act: Callable[[Value], None]) -> None:
        self._loop = loop
        self._act = act
        self._values: deque[Value] = deque()
        self._armed = False
        self._is_closed = False

    def put(self, value: Value) -> None:
        """Hand a value over; one that comes after the loop was closed is dropped, since nobody is there any more."""
        if self._is_closed:
            return
        self._values.append(value)
        if self._armed:
            return
        self._armed = True
        try:
            self._loop.call_soon_threadsafe(self._drain)
        except RuntimeError:  # the loop is closed
            self._is_closed = True
            self._values.clear()

    def _drain(self) -> None:
        # Disarmed first: a value put while this runs arms the next wake-up.
        self._armed = False
        # Those that are here now: whoever puts without end must not hold the loop.
        for _ in range(len(self._values)):
            value = self._values.popleft()
            try:
                self._act(value)
            except Exception as error:  # one value that cannot be taken must not hold up the others
                self._loop.call_exception_handler({"message": "a value was not taken", "exception": error})
