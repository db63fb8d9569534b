"""How long connections may wait for something; one timer serves all, since each request ends a wait and begins one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Deadlines(Generic[Item]):
    """Those that wait, each since its own moment, and all for at most the same time."""

    def __init__(self, timeout: float, end: Callable[[Item], None]) -> None:
        """Wait for nothing yet.

        Args:
            timeout: seconds that each may wait.
            end: ends one whose time is over.
        """
        self._timeout = timeout
        self._end = end
        self._since: dict[Item, float] = {}
        """When each began to wait by the loop's clock, the oldest first."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, item: Item) -> bool:
        return item in self._since

    def add(self, item: Item) -> None:
        """Start an item's time, afresh if it runs."""
        loop = asyncio.get_running_loop()
        self._since.pop(item, None)
        self._since[item] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._timeout, self._sweep)

    def remove(self, item: Item) -> None:
        """Stop an item's time, if it runs."""
        self._since.pop(item, None)

    def end_all(self) -> None:
        """End all of them now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._since:
            self._end_one(next(iter(self._since)))

    def end_oldest(self, least: float, may_end: Callable[[Item], bool]) -> bool:
        """End the one that has waited longest, of those that may; false where none has waited for `least` seconds."""
        latest = asyncio.get_running_loop().time() - least
        for item, since in self._since.items():
            if since > latest:
                return False
            if may_end(item):
                self._end_one(item)
                return True
        return False

    def _sweep(self) -> None:
        """End those whose time is over, and come back when that of the next is."""
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._since:
            oldest, since = next(iter(self._since.items()))
            if since + self._timeout > loop.time():
                self._timer = loop.call_at(since + self._timeout, self._sweep)
                return
            self._end_one(oldest)

    def _end_one(self, item: Item) -> None:
        del self._since[item]
        self._end(item)
