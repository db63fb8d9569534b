"""A connection to the admin port: one request of HTTP/1.1, its answer, and the end.

Hypercorn would speak HTTP/2 here, and read as many requests as a client sends at once. Either lets one stranger hold
the loop of a service for seconds (T39).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import h11
from hypercorn.asyncio.tcp_server import TCPServer

_VERSIONS: Final = frozenset((b"1.0", b"1.1"))
_HEAD_WITHIN: Final = 5.0
"""Seconds that a head may take."""
_LONGEST_HEAD: Final = 16 * 1024
"""Bytes of a head."""
_WRITE_WITHIN: Final = 10.0
"""Seconds that a client may take to read a part of its answer."""
_LINGER: Final = 1.0
"""Seconds that a client has to read its answer and to leave; one that is cut with unread bytes reads no answer."""
_DROPPED: Final = 256 * 1024
"""Unneeded bytes behind a head after which a client is cut."""
_READ: Final = 16 * 1024
"""Bytes that are read and dropped at a time."""


class AdminConnection(TCPServer):
    """Serves the one request of a connection. Nobody reads its body."""

    _parsed: h11.Connection

    async def run(self) -> None:
        """Serve the connection to its end."""
        self._parsed = h11.Connection(h11.SERVER, max_incomplete_event_size=_LONGEST_HEAD)
        try:
            await self._serve()
            if not self.writer.transport.is_closing():
                self.writer.write_eof()
                async with asyncio.timeout(_LINGER):
                    await self._wait_gone()
        except (OSError, TimeoutError):
            pass  # it was answered, or its client has left
        finally:
            self.writer.close()

    async def _serve(self) -> None:
        try:
            async with asyncio.timeout(_HEAD_WITHIN):
                request = await self._read_head()
        except TimeoutError:
            await self._refuse(408)
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint)
        else:
            if request is not None:
                await self.app(_scope(request), self._receive, self._send, _no_thread, _no_thread)

    async def _read_head(self) -> h11.Request | None:
        """Read the head; None if the client leaves without one."""
        while (event := self._parsed.next_event()) is h11.NEED_DATA:
            self._parsed.receive_data(await self.reader.read(_READ))
        if not isinstance(event, h11.Request):
            return None
        if event.http_version not in _VERSIONS:
            raise h11.RemoteProtocolError("unknown version", error_status_hint=505)
        return event

    async def _refuse(self, status: int) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await self._send({"type": "http.response.body"})

    async def _receive(self) -> Any:
        """Wait until the client leaves: a page needs no body."""
        await self._wait_gone()
        return {"type": "http.disconnect"}

    async def _wait_gone(self) -> None:
        left = _DROPPED
        try:
            while left > 0 and (data := await self.reader.read(_READ)):
                left -= len(data)
        except OSError:
            pass

    async def _send(self, message: Any) -> None:
        """Send a part of the answer; nothing to a client that has left."""
        if message is None:
            return
        if message["type"] == "http.response.start":
            headers = [*message["headers"], (b"connection", b"close"), *self.config.response_headers("h11")]
            await self._write(self._parsed.send(h11.Response(status_code=message["status"], headers=headers)))
            return
        await self._write(self._parsed.send(h11.Data(data=message.get("body", b""))))
        if not message.get("more_body", False):
            await self._write(self._parsed.send(h11.EndOfMessage()))

    async def _write(self, data: bytes | None) -> None:
        """Write; cut a client that does not read."""
        try:
            async with asyncio.timeout(_WRITE_WITHIN):
                if data and not self.writer.transport.is_closing():
                    self.writer.write(data)
                    await self.writer.drain()
        except (OSError, TimeoutError):
            self.writer.transport.abort()


def _scope(request: h11.Request) -> Any:
    path, _, query = request.target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"spec_version": "2.3", "version": "3.0"},
        "http_version": request.http_version.decode("ascii"),
        "scheme": "http",
        "method": request.method.decode("ascii"),
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": list(request.headers),
        "client": None,
        "server": None,
        "state": {},
        "extensions": {},
    }


def _no_thread(*_: Any) -> Any:
    """Stand in place of the thread for a WSGI application."""
    raise NotImplementedError
