"""A TCP balancer, as a cluster's own is: a new connection goes to the next ready address, and stays where it is."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream


class Passage:
    """Hands connections on; who speaks over one does not know that it is there."""

    def __init__(self, urls: list[str]) -> None:
        self.ready = urls
        """Where new connections go. Whoever has one leave takes it out; its connections go on until it closes them."""
        self.url = ""
        self._turns = itertools.count()

    async def serve(self, client: SocketStream) -> None:
        """Pass one connection on."""
        parts = urlsplit(self.ready[next(self._turns) % len(self.ready)])
        async with client:
            with suppress(OSError):
                async with (
                    await anyio.connect_tcp(parts.hostname or "", parts.port or 80) as edge,
                    anyio.create_task_group() as tasks,
                ):
                    tasks.start_soon(_pump, client, edge, tasks.cancel_scope)
                    tasks.start_soon(_pump, edge, client, tasks.cancel_scope)


async def _pump(source: SocketStream, target: SocketStream, both: anyio.CancelScope) -> None:
    """Pass on what comes until one side closes, which closes the other."""
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            await target.send(await source.receive())
    both.cancel()


@asynccontextmanager
async def passage(urls: list[str]) -> AsyncIterator[Passage]:
    """Run one on a free port of this host."""
    opened = Passage(urls)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener, anyio.create_task_group() as tasks:
        opened.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}{urlsplit(urls[0]).path}"
        tasks.start_soon(listener.serve, opened.serve)
        yield opened
        tasks.cancel_scope.cancel()
