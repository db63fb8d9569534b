"""A budget of memory for large bodies: those who need some wait in turn, and give it back."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


class NoRoom(Exception):
    """Raised when room for a body did not come free in time."""


class BudgetAccount:
    """What one body has taken so far."""

    def __init__(self, room: MemoryBudget, within: float) -> None:
        self._room = room
        self._within = within
        self._taken = 0

    async def charge(self, size: int) -> None:
        """Take more; raises `NoRoom` where it does not come free in time."""
        await self._room.take(size, self._within)
        self._taken += size

    def close(self) -> None:
        """Give all of it back."""
        self._room.give(self._taken)
        self._taken = 0


class MemoryBudget:
    """A number of bytes that all large bodies of a kind share, so that no number of clients fills an edge's memory."""

    def __init__(self, size: int, setting: str) -> None:
        """Set the room up.

        Args:
            size: in bytes.
            setting: the variable that says so, for the operator.
        """
        self._setting = setting
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
        await self.take(size, within)
        try:
            yield
        finally:
            self.give(size)

    def open(self, *, within: float) -> BudgetAccount:
        """Open an account that takes memory bit by bit; its `close` gives all of it back."""
        return BudgetAccount(self, within)

    async def take(self, size: int, within: float) -> None:
        """Take room that is given back by `give`; raises `NoRoom`."""
        if not self.try_take(size):
            await self._wait(size, within)

    def try_take(self, size: int) -> bool:
        """Take room that is given back by `give`, if there is some now."""
        if self._waiting or size > self._free:
            return False
        self._free -= size
        return True

    def give(self, size: int) -> None:
        """Give room back, to those who wait for it."""
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
                raise NoRoom(f"no room for {size} bytes within {within:g} s ({self._setting})") from None
            raise

    def _serve(self) -> None:
        """Give room to those who wait, in their order."""
        while self._waiting and self._waiting[0][0] <= self._free:
            size, given = self._waiting.popleft()
            self._free -= size
            given.set()
