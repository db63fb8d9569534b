"""Room in memory for large bodies: who needs some waits in turn, and gives it back."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


class NoRoom(Exception):
    """Raised when room for a body did not come free in time."""


class Room:
    """A number of bytes that all large bodies of an edge share, so that no number of clients fills its memory."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._size = size
        self._waiting: deque[tuple[int, anyio.Event]] = deque()

    @property
    def used(self) -> int:
        """Bytes that are taken."""
        return self._size - self._free

    @asynccontextmanager
    async def hold(self, size: int, *, within: float) -> AsyncIterator[None]:
        """Take room for the length of a block; what is larger than all of it takes all of it.

        Raises:
            NoRoom: it did not come free within so many seconds.
        """
        size = min(size, self._size)
        if self._waiting or size > self._free:
            await self._wait(size, within)
        else:
            self._free -= size
        try:
            yield
        finally:
            self._free += size
            self._serve()

    async def _wait(self, size: int, within: float) -> None:
        place = (size, anyio.Event())
        self._waiting.append(place)
        try:
            with anyio.fail_after(within):
                await place[1].wait()
        except BaseException as error:
            if place[1].is_set():  # given, and given back in the same moment
                self._free += size
            else:
                self._waiting.remove(place)
            self._serve()
            if isinstance(error, TimeoutError):
                raise NoRoom(f"no room for {size} bytes within {within:g} s (MCPFLEET_BODY_ROOM)") from None
            raise

    def _serve(self) -> None:
        """Give room to those who wait, in their order."""
        while self._waiting and self._waiting[0][0] <= self._free:
            size, given = self._waiting.popleft()
            self._free -= size
            given.set()
