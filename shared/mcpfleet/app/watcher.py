"""A function of an application that is told which of its URIs the fleet's clients watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread

from mcpfleet.app.function import is_async
from mcpfleet.app.site import Site


class Watcher:
    """Follows what is watched."""

    def __init__(self, function: Callable[[frozenset[str]], Any]) -> None:
        self.name = Site.of(function).name
        self._function = function
        self._is_async = is_async(function)

    async def tell(self, uris: frozenset[str], threads: anyio.CapacityLimiter) -> None:
        """Call it, on the event loop where it is async, else in a thread; what it raises is raised."""
        if self._is_async:
            await self._function(uris)
        else:
            await anyio.to_thread.run_sync(self._function, uris, limiter=threads)
