"""A right to be sent something, and the bytes that depend on it (X53).

Bytes wait at several places before a socket takes them: for the end of the event loop's turn, or for an HTTP/2 client's
window. Meanwhile the right may end. So each place asks a frame whether it still may be written.
"""

from __future__ import annotations

from collections.abc import Callable


class Grant:
    """A right. Its generation rises each time that the right may have ended."""

    __slots__ = ("generation",)

    def __init__(self) -> None:
        self.generation = 0

    def end(self) -> None:
        """Let no frame be written that was made until now."""
        self.generation += 1


class Frame:
    """Bytes that may be written only as long as the generation of their grant is the same."""

    __slots__ = ("_drop", "_generation", "_grant", "data")

    def __init__(self, data: bytes, grant: Grant, drop: Callable[[], None]) -> None:
        """Make a frame of a grant's present generation.

        Args:
            data: the bytes, which are written whole or not at all, as far as nothing of them has left.
            grant: the right to be sent them.
            drop: is called once where the frame is not written.
        """
        self.data = data
        self._grant = grant
        self._generation = grant.generation
        self._drop = drop

    @property
    def is_current(self) -> bool:
        """Whether it still may be written."""
        return self._grant.generation == self._generation

    def drop(self) -> None:
        """Tell its maker that it was not written."""
        self._drop()
