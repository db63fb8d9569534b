"""nats-py's client with a short way through it: it delivers messages where it parses them, and writes them in batches.

The plain client gives each message a queue, a task's turn and a parsed set of headers. It gives each batch of writes a
future and another task's turn. Together that is a third of an edge's time for a call, beside HTTP. The overridden
methods are
private to nats-py. `pyproject.toml` bounds its release, and `tests/contract/bus` holds what they do
(`docs/decisions/bus.md`).
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

import nats.errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from mcpfleet.bus.header import NAME
from mcpfleet.bus.port import Deliver, Incoming

_HEAD: Final = f"NATS/1.0\r\n{NAME}: "
_PLAIN: Final = re.compile(rf"NATS/1\.0\r\n{NAME}: ([^\r\n]*)\r\n\r\n".encode())
_AMONG_OTHERS: Final = re.compile(rf"\r\n{NAME}:[ \t]*([^\r\n]*)\r\n".encode())
_NO_RESPONDERS: Final = b"NATS/1.0 503"
_FULL: Final = 64 * 1024
"""Bytes in the socket's own buffer beyond which the client's flusher takes over, which waits for room."""


class ShortClient(Client):
    """One connection to NATS that hears by `hear`, never by a callback or an iterator of nats-py."""

    def __init__(self) -> None:
        """Describe a client; it connects as nats-py's does."""
        super().__init__()
        self._deliveries: dict[int, Deliver] = {}
        self._is_write_due = False

    def send(self, subject: str, body: bytes, reply: str, header: str | None) -> None:
        """Hand a message over without waiting; messages leave in the order of the calls.

        Raises:
            BadSubjectError: a subject or header has blanks or line ends, which could be read as commands.
        """
        if " " in subject or " " in reply or not (subject + reply + (header or "")).isprintable():
            raise nats.errors.BadSubjectError
        if header is None:
            command = b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(body), body)
        else:
            head = f"{_HEAD}{header}\r\n\r\n".encode()
            size = len(head)
            total = size + len(body)
            command = b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject.encode(), reply.encode(), size, total, head, body)
        self._pending.append(command)
        self._pending_data_size += len(command)
        self._write_soon()

    async def hear(self, subject: str, group: str, deliver: Deliver) -> Subscription:
        """Hear a subject, alone or in a group."""
        subscription = await self.subscribe(subject, queue=group)
        self._deliveries[subscription._id] = deliver  # noqa: SLF001
        return subscription

    def _connect_command(self) -> bytes:
        """Compose CONNECT. Refuse a server without TLS if the address asks for TLS, since it may be an impostor."""
        server = self._current_server
        if server is not None and server.uri.scheme == "tls" and not self._server_info.get("tls_required"):
            raise nats.errors.Error("it offers no TLS, which its address, tls://…, asks for")
        return super()._connect_command()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        """Deliver a message from the parser; a delivery that fails must not end the reader."""
        deliver = self._deliveries.get(sid)
        if deliver is None or sid not in self._subs:
            return
        message = Incoming(subject.decode(), reply.decode(), data)
        if headers is not None:
            message.header = _line(headers)
            message.no_responders = not data and headers.startswith(_NO_RESPONDERS)
        try:
            deliver(message)
        except Exception as error:
            await self._error_cb(error)

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        super()._remove_sub(sid, max_msgs)
        self._deliveries.pop(sid, None)

    async def _flush_pending(self, force_flush: bool = False) -> Any:  # nats-py's signature
        if force_flush or not self.is_connected:
            return await super()._flush_pending(force_flush)
        self._write_soon()
        return None

    def _write_soon(self) -> None:
        """Write at the end of the loop's turn everything that was handed over in it."""
        if not self._is_write_due:
            self._is_write_due = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._is_write_due = False
        writer = getattr(self._transport, "_io_writer", None)
        if not self._pending or writer is None or not self.is_connected or writer.transport.is_closing():
            return
        if writer.transport.get_write_buffer_size() > _FULL:
            if self._flush_queue is not None and self._flush_queue.empty():
                self._flush_queue.put_nowait(asyncio.Future())
            return
        pending, self._pending, self._pending_data_size = self._pending, [], 0
        writer.writelines(pending)


def _line(headers: bytes) -> str | None:
    """Return our line among the headers of a message; other programs may send more headers."""
    found = _PLAIN.fullmatch(headers) or _AMONG_OTHERS.search(headers)
    return found[1].decode("utf-8", "replace") if found is not None else None
