"""A way to a PostgreSQL that a test cuts in the middle of a statement, of a commit, or of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

Cut = Callable[[bytes], bool]
"""Looks at bytes that are to pass on, and says whether both ends are cut off before they do."""


def never(_data: bytes) -> bool:
    """Let everything pass."""
    return False


def once(word: bytes) -> Cut:
    """Cut at the first bytes that hold this word."""
    has_cut = False

    def cut(data: bytes) -> bool:
        nonlocal has_cut
        hits = not has_cut and word in data
        has_cut = has_cut or hits
        return hits

    return cut


def after(count: int) -> Cut:
    """Cut when this many more bytes have come."""
    left = count

    def cut(data: bytes) -> bool:
        nonlocal left
        if left < 0:
            return False
        left -= len(data)
        return left < 0

    return cut


class Cutting:
    """Connections to one PostgreSQL by TCP, whose server hears a Unix socket."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._user, self._database = parts.username, parts.path
        self.url = ""
        self.forth: Cut = never
        """Cuts what clients send."""
        self.back: Cut = never
        """Cuts the server's answers: by then it has done what it was told."""
        self.refuses = False
        self.is_deaf = False
        """New connections are taken, and nothing is heard of them."""
        self._writers: set[asyncio.StreamWriter] = set()
        self.cuts = 0

    def abort(self) -> None:
        """End every connection that there is."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        self._writers.add(writer)
        if self.is_deaf:
            await writer.wait_closed()
            return
        server_reader, server_writer = await asyncio.open_unix_connection(self._socket)

        def end() -> None:
            writer.transport.abort()
            server_writer.transport.abort()

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_forth: bool) -> None:
            with suppress(OSError):
                while data := await source.read(65536):
                    if (self.forth if is_forth else self.back)(data):
                        self.cuts += 1
                        break
                    sink.write(data)
                    await sink.drain()
            end()

        await asyncio.gather(pump(reader, server_writer, is_forth=True), pump(server_reader, writer, is_forth=False))


@asynccontextmanager
async def cutting(url: str) -> AsyncIterator[Cutting]:
    """Stand between a test's clients and the database of this address."""
    made = Cutting(url)
    server = await asyncio.start_server(made._serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    made.url = f"postgresql://{made._user}@127.0.0.1:{port}{made._database}?sslmode=disable"
    try:
        yield made
    finally:
        server.close()
        made.abort()
        await server.wait_closed()
