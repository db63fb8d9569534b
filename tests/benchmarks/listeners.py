"""Many listen streams over raw sockets, as a process of its own.

    .venv/bin/python -m tests.benchmarks.listeners URL STREAMS ROUNDS PROCESS

It opens the streams, has a change published so often, and waits each time until every stream was told. It prints one
line of JSON: seconds of each round, of the deliveries in it, and what the server's process (its id) spent and holds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, cast
from urllib.parse import urlsplit

import psutil
import uvloop

from tests.kit.wire_bytes import Posts, lines, message, meta, read_body

URI = "library://books/1"
META = meta("listeners")
TOLD = b"notifications/resources/updated"
SETTLES = 1.0
AT_ONCE = 100
ROUND_WITHIN = 60.0


def request(url: str, method: str, params: dict[str, Any], name: str | None = None) -> bytes:
    """A request as it stands on the wire."""
    parts = urlsplit(url)
    return Posts(parts.netloc, parts.path).post(message(method, params, META), lines(method, name))


class Listening(asyncio.Protocol):
    """One stream."""

    def __init__(self, all_of_them: Listeners) -> None:
        self._all = all_of_them
        self._is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        cast("asyncio.WriteTransport", transport).write(self._all.request)  # uvloop's is of another class

    def data_received(self, data: bytes) -> None:
        """Count what came; a message is never parted here, being small and written whole."""
        if not self._is_open:
            self._is_open = b"subscriptions/acknowledged" in data
            if self._is_open:
                self._all.opened()
        if TOLD in data:
            self._all.told(data.count(TOLD))

    def connection_lost(self, exc: Exception | None) -> None:
        """No stream ends while it is measured."""
        if not self._all.is_over:
            raise SystemExit(f"a stream was closed: {exc}")


class Listeners:
    """All the streams, and one connection that publishes."""

    def __init__(self, url: str, streams: int, pid: int) -> None:
        self.request = request(url, "subscriptions/listen", {"notifications": {"resourceSubscriptions": [URI]}})
        self.is_over = False
        self._publish = request(url, "tools/call", {"name": "touch", "arguments": {}}, "touch")
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._streams = streams
        self._server = psutil.Process(pid)
        self._open = 0
        self._times: list[float] = []
        self._news = asyncio.Event()

    def opened(self) -> None:
        """Count a stream that was acknowledged."""
        self._open += 1
        self._news.set()

    def told(self, count: int) -> None:
        """Count deliveries."""
        self._times += [time.perf_counter()] * count
        if len(self._times) >= self._streams:
            self._news.set()

    async def run(self, rounds: int) -> dict[str, Any]:
        """Open the streams and publish."""
        loop = asyncio.get_running_loop()
        await self._touch(*await self._connect())
        await asyncio.sleep(SETTLES)
        before = self._server.memory_info().rss
        began = time.perf_counter()
        for number in range(self._streams):
            await loop.create_connection(lambda: Listening(self), self._host, self._port)
            while number + 1 - self._open >= AT_ONCE:
                await self._wait()
        while self._open < self._streams:
            await self._wait()
        opening = time.perf_counter() - began
        await asyncio.sleep(SETTLES)
        memory = self._server.memory_info().rss - before
        found = [await self._round() for _ in range(rounds)]
        self.is_over = True
        return {"opening": opening, "memory": memory, "rounds": found}

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection for one request: a server may close one that is idle for long."""
        return await asyncio.open_connection(self._host, self._port)

    async def _round(self) -> dict[str, Any]:
        reader, writer = await self._connect()
        self._times.clear()
        spent = sum(self._server.cpu_times()[:2])
        began = time.perf_counter()
        await self._touch(reader, writer)
        while len(self._times) < self._streams:
            await self._wait()
        writer.close()
        took = [at - began for at in self._times]
        return {
            "seconds": max(took),
            "median": sorted(took)[len(took) // 2],
            "cpu": sum(self._server.cpu_times()[:2]) - spent,
        }

    async def _wait(self) -> None:
        self._news.clear()
        async with asyncio.timeout(ROUND_WITHIN):
            await self._news.wait()

    async def _touch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Have the change published; the answer may come as JSON or as a stream of one event."""
        writer.write(self._publish)
        await read_body(reader)


async def main(url: str, streams: int, rounds: int, pid: int) -> None:
    """Measure, and print what came of it."""
    sys.stdout.write(json.dumps(await Listeners(url, streams, pid).run(rounds)) + "\n")


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
