"""A right to be sent something, and the bytes that depend on it (X53, X54).

Bytes wait at several places before a socket takes them: for the end of the event loop's turn, for an HTTP/2 client's
window, for a client that does not read. Meanwhile the right may end. So each place asks a frame whether it still may be
written. A frame that is half written waits for the outcome: it goes on if the right was found unchanged, else it is
cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def _ignore() -> None:
    pass


class Grant:
    """A right. Its generation rises each time that the right may have ended."""

    __slots__ = ("_floor", "_is_uncertain", "_watchers", "generation")

    def __init__(self) -> None:
        self.generation = 0
        self._floor = 0
        """The lowest generation whose half-written frames may go on."""
        self._is_uncertain = False
        """It is not known whether the right has ended."""
        self._watchers: list[tuple[Frame, Callable[[], None]]] = []
        """The frames that are half written, and what is called with each outcome."""

    def end(self) -> None:
        """Let no frame begin that was made until now. Those that are half written wait for `confirm` or `refuse`."""
        self.generation += 1
        self._is_uncertain = True

    def confirm(self) -> None:
        """Let half-written frames go on: the right was found unchanged."""
        self._is_uncertain = False
        self._tell()

    def refuse(self) -> None:
        """Cut half-written frames: the right has ended."""
        self.generation += 1
        self._floor, self._is_uncertain = self.generation, False
        self._tell()

    def may_go_on(self, generation: int) -> bool:
        """Return whether the rest of a half-written frame of a generation may be written."""
        return generation == self.generation or (self._floor <= generation and not self._is_uncertain)

    def is_cut(self, generation: int) -> bool:
        """Return whether no further byte of a frame of a generation may be written."""
        return generation < self._floor

    def watch(self, frame: Frame, watcher: Callable[[], None]) -> None:
        """Call a watcher with each outcome for a frame, which is half written, until `unwatch`."""
        self._watchers.append((frame, watcher))

    def unwatch(self, frame: Frame, watcher: Callable[[], None]) -> None:
        """Undo one `watch`: the frame is written, or is dropped."""
        if (frame, watcher) in self._watchers:
            self._watchers.remove((frame, watcher))

    def half_written(self) -> dict[str, Any]:
        """Return what the frames that are half written tell of, by its keys."""
        return {key: notice for frame, _ in self._watchers for key, notice in frame.about.items()}

    def _tell(self) -> None:
        for _, watcher in list(self._watchers):
            watcher()


class Frame:
    """Bytes that may be written only as long as the generation of their grant is the same."""

    __slots__ = ("_drop", "_generation", "_grant", "about", "data", "is_begun")

    def __init__(
        self, data: bytes, grant: Grant, drop: Callable[[], None], about: Mapping[str, Any] = _NOTHING
    ) -> None:
        """Make a frame of a grant's present generation.

        Args:
            data: the bytes, which are written whole or not at all, as far as nothing of them has left.
            grant: the right to be sent them.
            drop: is called once where the frame is not written, or is cut.
            about: what the bytes tell of, by keys that the grant's holder knows.
        """
        self.data = data
        self._grant = grant
        self._generation = grant.generation
        self._drop = drop
        self.about = about
        self.is_begun = False
        """Some of its bytes have left."""

    @property
    def is_current(self) -> bool:
        """Whether it still may be written."""
        return self._grant.generation == self._generation

    @property
    def may_go_on(self) -> bool:
        """Whether its rest may be written, where it is half written."""
        return self._grant.may_go_on(self._generation)

    @property
    def is_cut(self) -> bool:
        """Whether no further byte of it may be written."""
        return self._grant.is_cut(self._generation)

    def drop(self) -> None:
        """Tell its maker that it was not written; the first call counts."""
        drop, self._drop = self._drop, _ignore
        drop()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call a watcher with each outcome for the frame, which is half written, until `unwatch`."""
        self._grant.watch(self, watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Undo one `watch`: the frame is written, or is dropped."""
        self._grant.unwatch(self, watcher)

    async def goes_on(self) -> bool:
        """Wait until it is known whether the rest may be written, and return that."""
        while not (self.may_go_on or self.is_cut):
            outcome = asyncio.Event()
            self.watch(outcome.set)
            try:
                await outcome.wait()
            finally:
                self.unwatch(outcome.set)
        return self.may_go_on
