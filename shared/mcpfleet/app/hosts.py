"""The workers that serve an App now, and the functions that hear from them which URIs clients watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import anyio
import anyio.to_thread

from mcpfleet.app.function import is_async
from mcpfleet.app.site import Site
from mcpfleet.contracts.hints import LISTS, Change, OwnChange, check_published


class Host(Protocol):
    """A worker that serves an App; its methods are callable on any thread, and never wait."""

    def changed(self) -> None:
        """Hear that the App's declarations have changed."""

    def publish(self, change: Change) -> None:
        """Tell those who watch it that something has changed."""

    def permits_changed(self, uris: frozenset[str]) -> None:
        """Tell edges that permits of some URIs may decide otherwise now; of all, if there are none."""


class Hosts:
    """The workers of one App in this process: one, except in a test."""

    def __init__(self) -> None:
        self._hosts: tuple[Host, ...] = ()

    def add(self, host: Host) -> None:
        """Add a worker, until `remove`."""
        self._hosts = (*self._hosts, host)

    def remove(self, host: Host) -> None:
        """Remove a worker."""
        self._hosts = tuple(each for each in self._hosts if each is not host)

    def changed(self) -> None:
        """Tell all of them that the App's declarations have changed."""
        for host in self._hosts:
            host.changed()

    def publish(self, uri: str) -> None:
        """Let one of them tell, since all edges hear each; do nothing if there is none.

        Raises:
            BadUri: it is not absolute and normalized.
        """
        check_published(uri)
        self._tell(uri)

    def resources_changed(self) -> None:
        """Let one of them tell that the App's lists return something else."""
        self._tell(LISTS)

    def permits_changed(self, uris: frozenset[str]) -> None:
        """Let one of them tell that permits may decide otherwise now."""
        for host in self._hosts[:1]:
            host.permits_changed(uris)

    def tell(self, change: OwnChange) -> None:
        """Let one of them tell that a key of an own notification has changed."""
        self._tell(change)

    def _tell(self, change: Change) -> None:
        for host in self._hosts[:1]:
            host.publish(change)


class Watcher:
    """A function that is told which URIs are watched."""

    def __init__(self, function: Callable[[frozenset[str]], Any]) -> None:
        self.name = Site.of(function).name
        self._function = function
        self._is_async = is_async(function)

    async def tell(self, uris: frozenset[str], threads: anyio.CapacityLimiter) -> None:
        """Call it, on the event loop if it is async, else in a thread; its errors are raised."""
        if self._is_async:
            await self._function(uris)
        else:
            await anyio.to_thread.run_sync(self._function, uris, limiter=threads)
