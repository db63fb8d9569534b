"""That a process is to stop, and until when it may take its time."""

from __future__ import annotations

import math
import time

import anyio


class Stopping:
    """Set by the first SIGTERM or SIGINT, and never unset; all services of a process share one."""

    def __init__(self, last_deadline: float) -> None:
        """Take the seconds after which whatever still runs is cancelled."""
        self._event = anyio.Event()
        self._last_deadline = last_deadline
        self._cut_at = math.inf

    def set(self) -> None:
        """Begin to stop; the first time counts. Called on the process's own loop."""
        if not self._event.is_set():
            self._cut_at = time.monotonic() + self._last_deadline
            self._event.set()

    def is_set(self) -> bool:
        """Whether the process is to stop; may be asked from any thread."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Wait until the process is to stop."""
        await self._event.wait()

    def left(self) -> float:
        """Seconds until whatever still runs is cancelled; infinite before the process is to stop."""
        return max(0.0, self._cut_at - time.monotonic())
