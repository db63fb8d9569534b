"""A TCP link that a test can sever: what passes through it is cut, or held back without a word, and healed again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import anyio
from anyio.abc import TaskStatus


class Severable:
    """A proxy in front of one address."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._scheme = parts.scheme
        self._host, self._port = parts.hostname, parts.port
        self._flows = asyncio.Event()
        self._flows.set()
        self._refuses = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    def freeze(self) -> None:
        """Hold every byte back from now on, as a network does that drops packets: nobody is told."""
        self._flows.clear()

    def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        self._refuses = True
        for writer in list(self._writers):
            writer.transport.abort()

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
            if not self._refuses:
                await self._flows.wait()
                back, forth = await asyncio.open_connection(self._host, self._port)
                self._writers.add(forth)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pump(reader, forth))
                    group.create_task(self._pump(back, writer))
                self._writers.discard(forth)
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    async def close(self) -> None:
        """End what still passes."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def severable(target: str) -> AsyncIterator[Severable]:
    """Run a severable link to an address, on a free port."""
    link = Severable(target)
    server = await asyncio.start_server(link.serve, "127.0.0.1", 0)
    link.url = f"{link._scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield link
    finally:
        server.close()
        await link.close()
        await server.wait_closed()


async def keep_severable(target: str, *, task_status: TaskStatus[Severable]) -> None:
    """Run one as a task, until cancelled; `start` returns it."""
    async with severable(target) as link:
        task_status.started(link)
        await anyio.sleep_forever()
