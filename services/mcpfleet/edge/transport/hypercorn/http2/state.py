"""h2's state of one connection, for a server whose clients are strangers.

A malformed request ends its stream (RFC 9113, 8.1.1), where h2 would end the connection with all other requests. A
stream counts until its handler has ended, and each refusal is charged to the client's budget.
"""

# ruff: noqa: SLF001  # h2 has no public way to end a stream instead of the connection

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from h2.config import H2Configuration
from h2.connection import AllowedStreamIDs, ConnectionInputs, H2Connection
from h2.errors import ErrorCodes
from h2.events import Event, StreamReset, TrailersReceived
from h2.exceptions import (
    DenialOfServiceError,
    InvalidBodyLengthError,
    ProtocolError,
    StreamClosedError,
    StreamIDTooLowError,
)
from h2.settings import SettingCodes, Settings
from h2.stream import H2Stream, StreamClosedBy, StreamState
from h2.utilities import SizeLimitDict
from hpack import Encoder
from hpack.exceptions import HPACKError, OversizedHeaderListError
from hpack.struct import HeaderTuple
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, HeadersFrame, RstStreamFrame

from mcpfleet.edge.transport.hypercorn.http2 import budget as cost
from mcpfleet.edge.transport.hypercorn.http2.budget import Budget
from mcpfleet.edge.transport.hypercorn.http2.frames import FrameReader
from mcpfleet.edge.transport.hypercorn.http2.headers import check_request, check_trailers
from mcpfleet.edge.transport.hypercorn.lifetimes import MultiplexedRequests

_TABLE: Final = 4096
"""Bytes of the header table for answers; each header of an answer is searched in it."""
_CLOSED: Final = 1000
"""Closed streams whose end is remembered; h2 keeps 65,536."""
_RESIZES: Final = 2
"""Changes of the table's size in one header block, at most (RFC 7541, 4.2)."""
_RESIZE: Final = 0x20
_RESIZE_BITS: Final = 0xE0
_RESIZE_VALUE: Final = 0x1F
_MORE: Final = 0x80
"""The bits of such a change: its pattern, the mask of the pattern, its value, and the mark of a further byte."""
_HEADER: Final = 5
"""Microseconds to decode and check a header."""
_BYTE: Final = 0.25
"""Microseconds to decode a byte of a header."""
_COPIED: Final = 4096
"""Bytes that are copied in a microsecond; hpack copies the rest of the block for each header."""
_SENDING: Final = (StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE)


class _CompressionError(ProtocolError):
    """Raised when a header block cannot be decoded, and so no later one of the connection."""

    error_code = ErrorCodes.COMPRESSION_ERROR


class _BoundedEncoder(Encoder):
    """Keeps its header table at the default size or below, and announces two changes at most (RFC 7541, 4.2)."""

    @property
    def header_table_size(self) -> int:
        """Bytes of the header table."""
        return self.header_table.maxsize

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        was_resized = self.header_table.resized
        self.header_table.maxsize = min(value, _TABLE)
        if self.header_table.resized:
            self.table_size_changes.append(self.header_table.maxsize)
            self.table_size_changes[:-1] = [min(self.table_size_changes)] if len(self.table_size_changes) > 1 else []
        self.header_table.resized |= was_resized


class ServerState(H2Connection):
    """One connection's state."""

    def __init__(
        self,
        budget: Budget,
        *,
        requests: MultiplexedRequests,
        max_frame_size: int,
        max_streams: int,
        max_headers: int,
    ) -> None:
        """Begin a connection.

        Args:
            budget: is charged for what the client sends.
            requests: count those of all connections.
            max_frame_size: in bytes.
            max_streams: streams that are open or have a running handler, at most.
            max_headers: bytes of a request's headers, at most.
        """
        super().__init__(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                validate_inbound_headers=False,  # `headers.py` does it in a tenth of the time
                validate_outbound_headers=False,
            )
        )
        self._budget = budget
        self._requests = requests
        self._max_streams = max_streams
        self.incoming_buffer = self.frames = FrameReader(budget, max_frame_size)
        self.encoder = _BoundedEncoder()
        self.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: max_streams,
                SettingCodes.MAX_HEADER_LIST_SIZE: max_headers,
            },
        )
        self.decoder.max_header_list_size = max_headers
        self._closed_streams = SizeLimitDict(size_limit=_CLOSED)
        self._work: dict[int, float] = {}
        """Microseconds that the headers of each unanswered request have cost."""

    def forget(self, stream_id: int) -> None:
        """Forget a closed stream whose handler has ended."""
        stream = self.streams.get(stream_id)
        if stream is not None and stream.closed:
            del self.streams[stream_id]
            self._work.pop(stream_id, None)
            self._closed_streams[stream_id] = stream.closed_by

    def was_reset(self, stream_id: int) -> bool:
        """Return whether either side has reset a stream."""
        return self._stream_is_closed_by_reset(stream_id)

    def is_sending(self, stream_id: int) -> bool:
        """Return whether a stream's answer has not ended."""
        stream = self.streams.get(stream_id)
        return stream is not None and stream.state_machine.state in _SENDING

    def note_answer(self, stream_id: int) -> None:
        """Give back the cost of a request, since its answer begins."""
        if (work := self._work.pop(stream_id, None)) is not None:
            self._budget.earn(cost.ANSWERED + min(work, cost.WORTH))

    def note_reset(self, stream_id: int) -> None:
        """Charge the cost of a request that its client has cancelled before the answer.

        Raises:
            DenialOfServiceError: the budget is empty.
        """
        if (work := self._work.pop(stream_id, None)) is not None:
            self._budget.spend(cost.REQUEST + min(work, cost.HEADERS))

    def _receive_frame(self, frame: Frame) -> list[Event]:
        """Take a frame as h2 does, without its costly debug log."""
        self.frames.streams = len(self.streams)
        events: list[Event]
        try:
            frames, events = self._frame_dispatch_table[frame.__class__](frame)
        except StreamClosedError as error:
            if not self._stream_is_closed_by_reset(error.stream_id):
                raise
            frames, events = [_reset(error.stream_id, error.error_code)], error._events
            self.frames.spend(cost.CONTROL)
        self._prepare_for_sending(frames)
        if events and isinstance(events[-1], StreamReset) and not events[-1].remote_reset:
            self.frames.spend(cost.REQUEST)
        return events

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        """Take that a client leaves; one that names no error has its requests answered (RFC 9113, 6.8).

        h2 would end the connection. Node and Go say this when they close a connection on which a request still runs.
        """
        if frame.error_code == ErrorCodes.NO_ERROR:
            return [], []
        return super()._receive_goaway_frame(frame)

    def _receive_rst_stream_frame(self, frame: RstStreamFrame) -> tuple[list[Frame], list[Event]]:
        if frame.stream_id > self.highest_inbound_stream_id or not frame.stream_id % 2:
            raise ProtocolError("RST_STREAM of an idle stream")
        return super()._receive_rst_stream_frame(frame)

    def _receive_data_frame(self, frame: DataFrame) -> tuple[list[Frame], list[Event]]:
        try:
            return super()._receive_data_frame(frame)
        except InvalidBodyLengthError:
            # All streams share the connection's window, so it is given back.
            error = StreamClosedError(frame.stream_id)
            error.error_code = ErrorCodes.PROTOCOL_ERROR
            error._events = _end_stream(self.streams[frame.stream_id], ErrorCodes.PROTOCOL_ERROR)
            return self._handle_data_on_closed_stream([], error, frame)

    def _receive_headers_frame(self, frame: HeadersFrame) -> tuple[list[Frame], list[Event]]:
        headers = self._decode(frame.data)
        size = len(frame.data)
        work = len(headers) * (_HEADER + size // _COPIED) + size * _BYTE
        if work > cost.HEADERS:
            self.frames.spend(work - cost.HEADERS)
        self.state_machine.process_input(ConnectionInputs.RECV_HEADERS)
        stream = self.streams.get(frame.stream_id)
        if stream is not None:
            self.frames.spend(cost.CONTROL + min(work, cost.HEADERS))
            return self._receive_trailers(stream, headers, ends="END_STREAM" in frame.flags)
        stream = self._begin(frame.stream_id)
        if stream is None:
            self.frames.spend(cost.CONTROL + min(work, cost.HEADERS))
            return [_reset(frame.stream_id, ErrorCodes.STREAM_CLOSED)], []
        if len(self.streams) > self._max_streams or self._requests.is_full():
            return _refused(stream, ErrorCodes.REFUSED_STREAM)
        try:
            check_request(headers)
            events = _receive(stream, headers, ends="END_STREAM" in frame.flags)
        except ProtocolError:
            return _refused(stream, ErrorCodes.PROTOCOL_ERROR)
        self._work[frame.stream_id] = work
        return [], events

    def _begin(self, stream_id: int) -> H2Stream | None:
        """Begin a stream; return None where its headers have crossed its reset."""
        try:
            return self._begin_new_stream(stream_id, AllowedStreamIDs.ODD)
        except StreamIDTooLowError:
            if self._stream_is_closed_by_reset(stream_id):
                return None
            if self._stream_is_closed_by_end(stream_id):
                raise StreamClosedError(stream_id) from None
            raise

    def _receive_trailers(
        self, stream: H2Stream, headers: Sequence[HeaderTuple], *, ends: bool
    ) -> tuple[list[Frame], list[Event]]:
        if stream.closed:
            raise StreamClosedError(stream.stream_id)
        try:
            check_trailers(headers)
            return [], _receive(stream, headers, ends=ends)
        except StreamClosedError:
            raise
        except ProtocolError:
            return _refused(stream, ErrorCodes.PROTOCOL_ERROR)

    def _decode(self, block: bytes) -> list[HeaderTuple]:
        if _resizes(block) > _RESIZES:
            raise _CompressionError("header block changes the table's size too often")
        try:
            return list(self.decoder.decode(block, raw=True))
        except OversizedHeaderListError as error:
            raise DenialOfServiceError("headers too large") from error
        except (HPACKError, IndexError, TypeError) as error:
            raise _CompressionError("header block cannot be decoded") from error


def _receive(stream: H2Stream, headers: Sequence[HeaderTuple], *, ends: bool) -> list[Event]:
    """Have a stream take headers; check the stated length where they end the body, which h2 omits."""
    stated = stream._expected_content_length
    _, events = stream.receive_headers(headers, ends, None)
    if isinstance(events[0], TrailersReceived):
        stream._expected_content_length = stated
    if ends:
        stream._track_content_length(0, end_stream=True)
    return events


def _refused(stream: H2Stream, code: ErrorCodes) -> tuple[list[Frame], list[Event]]:
    return [_reset(stream.stream_id, code)], _end_stream(stream, code)


def _end_stream(stream: H2Stream, code: ErrorCodes) -> list[Event]:
    """Mark a stream as reset, in whatever state an error has left it."""
    stream.state_machine.state = StreamState.CLOSED
    stream.state_machine.stream_closed_by = StreamClosedBy.SEND_RST_STREAM
    return [StreamReset(stream_id=stream.stream_id, error_code=code, remote_reset=False)]


def _reset(stream_id: int, code: ErrorCodes | int) -> Frame:
    return RstStreamFrame(stream_id, error_code=code)


def _resizes(block: bytes) -> int:
    """Return how often a header block changes the table's size at its begin; hpack has no bound."""
    at = count = 0
    while at < len(block) and count <= _RESIZES and block[at] & _RESIZE_BITS == _RESIZE:
        count += 1
        is_long = block[at] & _RESIZE_VALUE == _RESIZE_VALUE
        at += 1
        while is_long and at < len(block):
            is_long = block[at] & _MORE != 0
            at += 1
    return count
