"""Pages that a service adds to the admin port of its process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping

from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope

Page = Callable[[HTTPScope, ASGIReceiveCallable, ASGISendCallable], Awaitable[None]]
"""Answers one request; GET and HEAD alone reach it."""


class Pages:
    """The pages by their paths; services that share a process share them, and the first to offer a path serves it."""

    def __init__(self, url: str = "") -> None:
        self.url = url
        """Where the admin port is reached from this machine; empty where there is none."""
        self._pages: dict[str, Page] = {}

    def offer(self, pages: Mapping[str, Page]) -> bool:
        """Serve pages from now on; false, and nothing is served, where another service has one of their paths."""
        if self._pages.keys() & pages.keys():
            return False
        self._pages.update(pages)
        return True

    def find(self, path: str) -> Page | None:
        """The page of a path."""
        return self._pages.get(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._pages)
