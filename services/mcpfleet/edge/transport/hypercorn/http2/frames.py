"""Splits an HTTP/2 client's bytes into frames, charges each frame first, and finds unfinished heads."""

from __future__ import annotations

from typing import Final

from h2.exceptions import DenialOfServiceError, FrameDataMissingError, ProtocolError
from h2.frame_buffer import FrameBuffer
from hyperframe.frame import Frame, HeadersFrame, SettingsFrame

from mcpfleet.edge.transport.hypercorn.http2 import budget as cost
from mcpfleet.edge.transport.hypercorn.http2.budget import Budget

_HEAD: Final = 9
"""Bytes of a frame's head: its length, type, flags and stream."""
_PREFACE: Final = 24
"""Bytes of the client's preface before its SETTINGS frame (RFC 9113, 3.4)."""
_TYPE: Final = 3
"""Where a frame's head has its type."""
_DATA: Final = 0
_HEADERS: Final = 1
_PRIORITY: Final = 2
_SETTINGS: Final = 4
_CONTINUATION: Final = 9
"""Types of frames; CONTINUATION is the last type of HTTP/2 (RFC 9113, 6)."""
_ACK: Final = 1
_END_HEADERS: Final = 4
_PRIORITY_LENGTH: Final = 5
"""Bytes of a PRIORITY frame."""
_BLOCK: Final = 64 * 1024
"""Bytes of a header block in all its frames, at most; decoded, it may have as many."""
_TURN: Final = 4_000
"""Microseconds of work after which other tasks run."""
_SETTING: Final = 2
"""Microseconds of one setting."""
_WINDOW: Final = 5
"""Microseconds to move a stream's window, and to try to send again."""
_NEW_STREAM: Final = 250
"""Microseconds of a turn for HEADERS, in which the request starts."""
_KNOWN_SETTINGS: Final = frozenset(range(1, 7))
"""Settings with a meaning. h2 would keep 65,536 others for each connection."""


class FrameReader(FrameBuffer):
    """h2's buffer of received bytes. It skips frames without a meaning, and stops at the end of a turn."""

    def __init__(self, budget: Budget, max_frame_size: int) -> None:
        """Begin empty.

        Args:
            budget: is charged for the frames.
            max_frame_size: in bytes.
        """
        super().__init__(server=True)
        self.max_frame_size = max_frame_size
        self._budget = budget
        self._turn: float = _TURN
        self._block = 0
        """Bytes of the unfinished header block."""
        self.streams = 0
        """The number of streams; a SETTINGS frame may move the window of each."""

    @property
    def is_cut(self) -> bool:
        """Whether frames wait for the next turn."""
        return self._turn <= 0

    def begin_turn(self, others: int = 0) -> None:
        """Take as much time as a turn has, shared with so many other connections; one frame is read in any case."""
        self._turn = _TURN / (1 + others)

    def __next__(self) -> Frame:
        """Return the next whole frame of this turn.

        Raises:
            StopIteration: there is none, or the turn is over.
            ProtocolError: the frame is not allowed here, or the budget is empty.
        """
        data = self._data
        while self._turn > 0 and len(data) >= _HEAD:
            length, kind = int.from_bytes(data[:3]), data[3]
            self._validate_frame_length(length)  # h2 checks it only once the whole frame has arrived
            if len(data) < _HEAD + length:
                break
            if self._headers_buffer or kind == _CONTINUATION:
                self._take_fragment(length, kind)
            elif kind == _PRIORITY or kind > _CONTINUATION:
                self._skip(length, kind)
                continue
            else:
                self._pay(length, kind, data[4])
            frame = super().__next__()
            if frame.__class__ is SettingsFrame:
                frame.settings = {name: value for name, value in frame.settings.items() if name in _KNOWN_SETTINGS}
            elif frame.__class__ is HeadersFrame:
                frame.flags.discard("PRIORITY")  # ignored advice, which may be malformed (RFC 9113, 5.3.2)
            return frame
        raise StopIteration

    def spend(self, work: float) -> None:
        """Charge work to this turn and to the budget."""
        self._turn -= work
        self._budget.spend(work)

    def _skip(self, length: int, kind: int) -> None:
        """Skip a frame after a check of its form."""
        data = self._data
        if kind == _PRIORITY:
            if not any(data[5:_HEAD]):
                raise ProtocolError("PRIORITY without a stream")
            if length != _PRIORITY_LENGTH:
                raise FrameDataMissingError("PRIORITY of another length")
        self.spend(cost.SKIPPED)
        del data[: _HEAD + length]

    def _take_fragment(self, length: int, kind: int) -> None:
        """Charge a further part of a header block; no other frame may come between its parts (RFC 9113, 6.10)."""
        if kind != _CONTINUATION or not self._headers_buffer:
            raise ProtocolError("a header block's part is missing, or is of none")
        self._block += length
        if self._block > _BLOCK:
            raise DenialOfServiceError("header block too large")
        self.spend(cost.FRAGMENT)

    def _pay(self, length: int, kind: int, flags: int) -> None:
        """Charge a whole frame; the frames of a request earn their cost back with its answer."""
        if kind == _HEADERS:
            self._block = length
            self._turn -= _NEW_STREAM
            if not flags & _END_HEADERS:
                self.spend(cost.FRAGMENT)
        elif kind == _DATA:
            if length < cost.SMALL:
                self.spend(cost.SMALL_DATA)
            else:
                self._turn -= cost.SMALL_DATA
        elif kind == _SETTINGS and not flags & _ACK:
            self.spend(cost.SETTINGS + length // 6 * _SETTING + self.streams * _WINDOW)
        elif kind == _SETTINGS and length:
            raise FrameDataMissingError("SETTINGS that acknowledge, with entries")
        else:
            self.spend(cost.CONTROL)


class PartialHead:
    """Finds out after each read whether a head has begun and is not whole; the client's preface counts as one."""

    def __init__(self) -> None:
        """Begin before the first byte of a connection."""
        self.is_partial = True
        """A head has begun and is not whole."""
        self.is_new = False
        """It is another head than after the last read."""
        self._is_greeted = False
        self._total = 0
        self._waiting = 0
        """Bytes of the frame that was not whole after the last read."""
        self._block: object = None
        """The HEADERS frame whose header block was not whole after the last read."""

    def look(self, buffer: FrameBuffer, arrived: int) -> None:
        """Examine the buffer after a read.

        Args:
            buffer: h2's bytes that it has not taken yet.
            arrived: bytes of this read.
        """
        waiting, blocks = buffer._data, buffer._headers_buffer  # noqa: SLF001  # h2 has no public way to it
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
            # Where bytes were only added, the frame is the same as before.
            self.is_new = len(waiting) != self._waiting + arrived or not self._waiting
            self.is_partial = len(waiting) > 0 and (len(waiting) <= _TYPE or waiting[_TYPE] != _DATA)
        self._waiting, self._block = len(waiting), block
