"""Which head of an HTTP/2 connection has begun to arrive, and is not whole: the client's preface counts as one."""

from __future__ import annotations

from typing import Final

from h2.frame_buffer import FrameBuffer

_PREFACE: Final = 24
"""Bytes of the preface before its SETTINGS frame (RFC 9113, 3.4)."""
_TYPE: Final = 3
"""Where a frame's head has its type."""
_DATA: Final = 0
"""The type of a body's frames, whose time the body's reader bounds."""


class BegunHead:
    """Looks at what h2 has not taken yet, after each read."""

    def __init__(self) -> None:
        """Begin with a connection that has sent nothing."""
        self.is_partial = True
        """A head has begun and is not whole."""
        self.is_new = False
        """It is another head than at the last look."""
        self._is_greeted = False
        self._total = 0
        self._waiting = 0
        """Bytes of a frame that was not whole at the last look."""
        self._block: object = None
        """The HEADERS frame whose header block was not whole at the last look."""

    def look(self, buffer: FrameBuffer, arrived: int) -> None:
        """Note what has arrived.

        Args:
            buffer: h2's, of what has arrived.
            arrived: bytes since the last look.
        """
        waiting, blocks = buffer._data, buffer._headers_buffer  # noqa: SLF001  # h2 does not say it otherwise
        block: object = blocks[0] if blocks else None
        if not self._is_greeted:
            self._total += arrived
            self._is_greeted = self._total - len(waiting) > _PREFACE
        if not self._is_greeted:
            self.is_new, self.is_partial = False, True
        elif block is not None:
            self.is_new = block is not self._block
            self.is_partial = True
        else:
            # Where bytes were only added, it is the same frame as before.
            self.is_new = len(waiting) != self._waiting + arrived or not self._waiting
            self.is_partial = len(waiting) > 0 and (len(waiting) <= _TYPE or waiting[_TYPE] != _DATA)
        self._waiting, self._block = len(waiting), block
