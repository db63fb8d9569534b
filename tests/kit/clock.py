"""A clock that tests move: `time.monotonic`, and with it every timer of the test's event loop, jumps and does not wait.

The product reads `time.monotonic` and its loop's time, which asyncio takes from there. So no seam is needed in the
product, and nothing is added to its hot paths. The clock replaces `time.monotonic` for the length of a test. Where
nothing is ready, the loop's selector says at once that its timeout is over. Timers fire in their order, at the time
that they wait for. The wall clock (`time.time`) and other processes go on as they are. So a test that waits for NATS, a
database or a thread moves the clock only by what these may be late.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest


class Clock:
    """Time that is ahead of the machine's by as much as the test has moved it."""

    def __init__(self) -> None:
        self.ahead = 0.0
        """Seconds."""
        self._machines = time.monotonic
        self._jumps = 0

    def __call__(self) -> float:
        return self._machines() + self.ahead

    async def move(self, seconds: float) -> None:
        """Let so many seconds pass at once: everything that is due meanwhile happens, in its order."""
        self._jumps += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self._jumps -= 1

    def jump(self) -> None:
        """Wait for no timer from now on: whenever nothing is ready, the next timer is due."""
        self._jumps += 1

    def drive(self, loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Drive a loop that runs in this thread, and all readers of `time.monotonic`."""
        select = loop._selector.select

        def jumping(timeout: float | None = None) -> Any:
            if not self._jumps or timeout is None:
                return select(timeout)
            events = select(0)
            if not events:
                self.ahead += max(0.0, timeout)
            return events

        monkeypatch.setattr(time, "monotonic", self)
        monkeypatch.setattr(loop._selector, "select", jumping)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that the test moves."""
    made = Clock()
    made.drive(asyncio.get_running_loop(), monkeypatch)
    return made


@pytest.fixture
async def jumping(clock: Clock) -> Clock:
    """A clock that jumps to the next timer by itself, for tests that wait for nothing outside of their own loop."""
    clock.jump()
    return clock
