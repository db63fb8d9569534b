"""Hypercorn's HTTP/2, mended where what one stream brings ends its connection, and all other requests with it."""

from __future__ import annotations

from collections.abc import Iterator

from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, RequestReceived
from hypercorn.protocol.h2 import H2Protocol

_NEEDED = frozenset((b":method", b":path"))
"""What Hypercorn reads as ASCII, and takes for granted."""


class Http2(H2Protocol):
    """One client's connection."""

    async def _handle_events(self, events: list[Event]) -> None:
        await super()._handle_events(self._in_order(events))  # type: ignore[arg-type]  # it goes through them once

    def _in_order(self, events: list[Event]) -> Iterator[Event]:
        """Leave out what Hypercorn cannot take.

        A part of a body may come when its request is answered already: it was refused by its head, say. It is taken and
        dropped, so that a client which sends its body to the end reads the answer.
        """
        for event in events:
            if isinstance(event, DataReceived) and event.stream_id not in self.streams:
                self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, RequestReceived) and not _is_readable(event):
                self.connection.reset_stream(event.stream_id, ErrorCodes.PROTOCOL_ERROR)
            else:
                yield event


def _is_readable(event: RequestReceived) -> bool:
    found = {name for name, value in event.headers if name in _NEEDED and value.isascii()}
    return found == _NEEDED
