"""The TCP balancer: where connections go, that they stay there, and that each side's end reaches the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.kit.proxy import proxied


@asynccontextmanager
async def server(handle: Callable[[SocketStream], Awaitable[None]]) -> AsyncIterator[str]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/mcp"
        tasks.cancel_scope.cancel()


def named(name: bytes) -> Callable[[SocketStream], Awaitable[None]]:
    """Answers everything with its name, and leaves when it is told to."""

    async def handle(stream: SocketStream) -> None:
        async with stream:
            try:
                while await stream.receive() != b"leave":
                    await stream.send(name)
            except anyio.EndOfStream:
                pass

    return handle


async def connect(url: str) -> SocketStream:
    parts = urlsplit(url)
    assert parts.path == "/mcp"
    return await anyio.connect_tcp(parts.hostname or "", parts.port or 0)


async def asked(stream: SocketStream) -> bytes:
    await stream.send(b"who")
    with anyio.fail_after(5):
        return await stream.receive()


async def test_a_connection_stays_where_it_is_and_new_ones_go_to_those_that_are_ready() -> None:
    async with (
        server(named(b"one")) as one,
        server(named(b"two")) as two,
        proxied(one, two) as balancer,
        await connect(balancer.url) as first,
        await connect(balancer.url) as second,
    ):
        assert {await asked(first), await asked(second)} == {b"one", b"two"}
        balancer.ready = [two]
        async with await connect(balancer.url) as third:
            assert await asked(third) == b"two"
        assert {await asked(first), await asked(second)} == {b"one", b"two"}


async def test_an_edge_that_closes_closes_its_clients_connection() -> None:
    async with (
        server(named(b"one")) as one,
        proxied(one) as balancer,
        await connect(balancer.url) as stream,
    ):
        await stream.send(b"leave")
        with anyio.fail_after(5), pytest.raises(anyio.EndOfStream):
            await stream.receive()
