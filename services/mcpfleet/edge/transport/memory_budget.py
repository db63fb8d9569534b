"""A memory budget for large bodies: each takes its share in turn, and gives it back."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


class BudgetExhausted(Exception):
    """Raised when memory for a body did not become free in time."""


class BudgetAccount:
    """The memory that one body has taken so far."""

    def __init__(self, budget: MemoryBudget, within: float) -> None:
        self._budget = budget
        self._within = within
        self._taken = 0

    async def charge(self, size: int) -> None:
        """Take more memory; raise `BudgetExhausted` where it does not become free in time."""
        await self._budget.take(size, self._within)
        self._taken += size

    def close(self) -> None:
        """Give all of it back."""
        self._budget.give(self._taken)
        self._taken = 0


class MemoryBudget:
    """A number of bytes that all large bodies of a kind share, so that no number of clients fills an edge's memory."""

    def __init__(self, size: int, setting: str) -> None:
        """Set the budget.

        Args:
            size: in bytes.
            setting: the variable that sets it, named in errors.
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
        """Take memory for the length of a block; a body larger than the budget takes all of it.

        Raises:
            BudgetExhausted: it did not become free within so many seconds.
        """
        size = min(size, self._size)
        await self.take(size, within)
        try:
            yield
        finally:
            self.give(size)

    def open(self, *, within: float) -> BudgetAccount:
        """Open an account that takes memory piece by piece; its `close` gives all of it back."""
        return BudgetAccount(self, within)

    async def take(self, size: int, within: float) -> None:
        """Take memory until `give`; raise `BudgetExhausted`."""
        if not self.try_take(size):
            await self._wait(size, within)

    def try_take(self, size: int) -> bool:
        """Take memory until `give`, if it is free now."""
        if self._waiting or size > self._free:
            return False
        self._free -= size
        return True

    def give(self, size: int) -> None:
        """Give memory back, to those who wait for it."""
        self._free += size
        self._serve()

    async def _wait(self, size: int, within: float) -> None:
        place = (size, anyio.Event())
        self._waiting.append(place)
        try:
            with anyio.fail_after(within):
                await place[1].wait()
        except BaseException as error:
            if place[1].is_set():  # it got the memory at the moment of its timeout or cancellation
                self._free += size
            else:
                self._waiting.remove(place)
            self._serve()
            if isinstance(error, TimeoutError):
                raise BudgetExhausted(f"no room for {size} bytes within {within:g} s ({self._setting})") from None
            raise

    def _serve(self) -> None:
        """Give memory to those who wait, in their order."""
        while self._waiting and self._waiting[0][0] <= self._free:
            size, granted = self._waiting.popleft()
            self._free -= size
            granted.set()
