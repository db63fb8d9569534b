"""An event that clears itself when its one waiter has heard it: news during the waiter's work is not lost."""

from __future__ import annotations

import anyio


class AutoResetEvent:
    """Wakes one loop, which waits for news or for a time to end."""

    def __init__(self) -> None:
        """Begin cleared."""
        self._event = anyio.Event()

    def set(self) -> None:
        """Wake the waiter, or let its next wait return at once."""
        self._event.set()

    def clear(self) -> None:
        """Forget earlier news."""
        if self._event.is_set():
            self._event = anyio.Event()

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set, and clear it.

        Args:
            seconds: the longest wait; None waits without end.

        Returns:
            False if the time ended first.
        """
        with anyio.move_on_after(seconds):
            await self._event.wait()
        was_set = self._event.is_set()
        self.clear()
        return was_set
