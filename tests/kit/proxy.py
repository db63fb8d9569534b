"""A TCP proxy: it balances connections as a cluster does, and a test cuts them, holds them back, and heals them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit, urlunsplit

import anyio
from anyio.abc import TaskStatus

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


class TcpProxy:
    """Passes connections on to servers; whoever speaks over one does not know that it is there."""

    def __init__(self, urls: list[str]) -> None:
        self.ready = urls
        """Addresses of servers. New connections go to each in turn, and stay with it when it is taken out."""
        self.url = ""
        """The first address, with the proxy in place of its server."""
        self.forth: Cut = never
        """Cuts what clients send."""
        self.back: Cut = never
        """Cuts what the server sends: by then it has done what it was told."""
        self.cuts = 0
        """How often these have cut."""
        self._turns = itertools.count()
        self._flows = asyncio.Event()
        self._flows.set()
        self._refuses = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def freeze(self) -> None:
        """Hold every byte back from now on, as a network does that drops packets: nobody is told."""
        self._flows.clear()

    def abort(self) -> None:
        """Break every connection that there is."""
        for writer in list(self._writers):
            writer.transport.abort()

    def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        self._refuses = True
        self.abort()

    def heal(self) -> None:
        """Let everything pass again."""
        self._refuses = False
        self._flows.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if self._refuses:
                writer.transport.abort()
                return
            await self._flows.wait()
            back, forth = await _connect(self.ready[next(self._turns) % len(self.ready)])
            self._writers.add(forth)
            try:
                if await self._join((reader, forth, True), (back, writer, False)):
                    for each in (writer, forth):
                        each.transport.abort()
            finally:
                self._writers.discard(forth)
                forth.close()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.close()

    async def _join(self, *ways: tuple[asyncio.StreamReader, asyncio.StreamWriter, bool]) -> bool:
        """Pass bytes on both ways until one side closes, or is cut; whether it was."""
        pumps = [asyncio.create_task(self._pump(*way)) for way in ways]
        try:
            done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            return any(pump.result() for pump in done)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_forth: bool) -> bool:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._flows.wait()
                if (self.forth if is_forth else self.back)(data):
                    self.cuts += 1
                    return True
                writer.write(data)
                await writer.drain()
        return False

    async def close(self) -> None:
        """End what still passes."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    if folder := _folder(url):
        return await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
    return await asyncio.open_connection(parts.hostname, parts.port)


def _folder(url: str) -> str:
    """The folder of PostgreSQL's Unix socket, where the address names one."""
    return parse_qs(urlsplit(url).query).get("host", [""])[0]


def _through(port: int, url: str) -> str:
    """The address of the proxy, for a client of what is at this one."""
    parts = urlsplit(url)
    user = f"{parts.username}@" if parts.username else ""
    query = "sslmode=disable" if _folder(url) else parts.query
    return urlunsplit((parts.scheme, f"{user}127.0.0.1:{port}", parts.path, query, ""))


@asynccontextmanager
async def proxied(*urls: str) -> AsyncIterator[TcpProxy]:
    """Run a proxy in front of these addresses, on a free port."""
    proxy = TcpProxy(list(urls))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = _through(server.sockets[0].getsockname()[1], urls[0])
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
        await server.wait_closed()


async def keep_proxied(url: str, *, task_status: TaskStatus[TcpProxy]) -> None:
    """Run one as a task, until cancelled; `start` returns it."""
    async with proxied(url) as proxy:
        task_status.started(proxy)
        await anyio.sleep_forever()
