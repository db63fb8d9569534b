"""An event that clears itself when its one waiter has heard it: news that come while the waiter works are not lost."""

from __future__ import annotations

import anyio


class AutoResetEvent:
    """Wakes one loop, which waits for news or for a time to be over."""

    def __init__(self) -> None:
        """Be clear."""
        self._event = anyio.Event()

    def set(self) -> None:
        """Wake the waiter, or have its next wait return at once."""
        self._event.set()

    def clear(self) -> None:
        """Forget what was set until now."""
        if self._event.is_set():
            self._event = anyio.Event()

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set, and clear it.

        Args:
            seconds: how long to wait at most; without end if None.

        Returns:
            False if the time was over first.
        """
        with anyio.move_on_after(seconds):
            await self._event.wait()
        was_set = self._event.is_set()
        self.clear()
        return was_set
