"""Hypercorn's TCP connection, mended where it outlives its client or ends with a traceback."""

from __future__ import annotations

import logging
from typing import Final

from h2.exceptions import ProtocolError
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.events import Event, Updated
from priority.priority import PriorityError

_log: Final = logging.getLogger("hypercorn.error")


class Connection(TCPServer):
    """One client's connection."""

    _is_over = False

    async def run(self) -> None:
        """Serve the connection to its end; a client that breaks HTTP/2 beyond repair is cut off with one line."""
        try:
            await super().run()
        except* (ProtocolError, PriorityError) as errors:
            _log.info("HTTP/2 connection closed: %s", errors.exceptions[0])

    async def _read_data(self) -> None:
        """End the idle timer with the client: Hypercorn holds the descriptor until its 75 s are over."""
        try:
            await super()._read_data()
        finally:
            self._is_over = True
            await self.idle_task.stop()

    async def protocol_send(self, event: Event) -> None:
        """Send to the client; one that has left is not idle, and starts no timer."""
        if not (self._is_over and isinstance(event, Updated)):
            await super().protocol_send(event)
