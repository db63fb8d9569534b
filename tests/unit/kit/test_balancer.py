"""The balancer: requests in turn, bytes as they come, and one side's end ends the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Self
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.kit.balancer import Balancer

pytestmark = pytest.mark.usefixtures("jumping")

SOON = 5.0
"""Seconds within which what a test waits for must come."""


class Upstream:
    """Stands in for an edge: keeps the bytes of each request, and answers by a function of the test."""

    def __init__(self, answer: Callable[[SocketStream], Awaitable[None]]) -> None:
        self._answer = answer
        self._stack = AsyncExitStack()
        self.requests: list[bytes] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        await self._stack.enter_async_context(listener)
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        self.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/mcp"
        tasks.start_soon(listener.serve, self._serve)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _serve(self, stream: SocketStream) -> None:
        async with stream:
            received = b""
            while not received.endswith((b"\r\n\r\n", b"the end")):
                received += await stream.receive()
            self.requests.append(received)
            await self._answer(stream)


def saying(text: bytes) -> Callable[[SocketStream], Awaitable[None]]:
    """Make an upstream's answer of one whole response."""

    async def answer(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))

    return answer


async def connect(url: str) -> SocketStream:
    """Open a bare connection to the balancer."""
    address = urlsplit(url)
    return await anyio.connect_tcp(address.hostname or "", address.port or 0)


async def closed(stream: SocketStream) -> bytes:
    """Read until the other end closes."""
    received = b""
    with anyio.fail_after(SOON), suppress(anyio.EndOfStream):
        while True:
            received += await stream.receive()
    return received


async def test_requests_of_one_connection_go_to_the_edges_in_turn() -> None:
    """No affinity: a kept-alive connection meets another edge with each request."""
    async with (
        Upstream(saying(b"a")) as a,
        Upstream(saying(b"b")) as b,
        Upstream(saying(b"c")) as c,
        Balancer([a.url, b.url, c.url]) as balancer,
        httpx2.AsyncClient(limits=httpx2.Limits(max_connections=1)) as client,
    ):
        answers = [(await client.get(balancer.url)).text for _ in range(4)]
        assert answers == ["a", "b", "c", "a"]
        assert balancer.served == [2, 1, 1]


async def test_a_request_arrives_as_it_was_written() -> None:
    """Target, Host, letters, order and repetition of headers, and the body are the client's own."""
    request = (
        b"POST /mcp?x=%20y HTTP/1.1\r\nHost: Public.example:8443\r\nMCP-METHOD: tools/call\r\nX-Twice: 1\r\n"
        b"x-twice: 2\r\nContent-Length: 7\r\n\r\nthe end"
    )
    async with Upstream(saying(b"")) as upstream, Balancer([upstream.url]) as balancer:
        async with await connect(balancer.url) as stream:
            await stream.send(request)
            assert (await stream.receive()).startswith(b"HTTP/1.1 200 ")
        assert upstream.requests == [request]


async def test_a_stream_is_passed_on_as_it_comes() -> None:
    """An event reaches the client while the edge still holds the rest back."""
    read = anyio.Event()

    async def answer(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await stream.send(b"9\r\ndata: 1\n\n\r\n")
        await read.wait()
        await stream.send(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")

    async with (
        Upstream(answer) as upstream,
        Balancer([upstream.url]) as balancer,
        httpx2.AsyncClient(timeout=SOON) as client,
        client.stream("GET", balancer.url) as response,
    ):
        parts = response.aiter_raw()
        assert await anext(parts) == b"data: 1\n\n"
        read.set()
        assert b"".join([part async for part in parts]) == b"data: 2\n\n"


async def test_a_client_may_listen_for_as_long_as_the_edge_talks() -> None:
    """Only the side whose turn it is can be too silent: a stream outlasts the patience with its client."""

    async def answer(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n")
        for _ in range(7):
            await anyio.sleep(0.2)
            await stream.send(b".")

    async with (
        Upstream(answer) as upstream,
        Balancer([upstream.url], patience=1.0) as balancer,
        httpx2.AsyncClient(timeout=SOON) as client,
    ):
        assert (await client.get(balancer.url)).text == "." * 7


async def test_a_silent_edge_is_given_up() -> None:
    """The wait for an answer has an end."""

    async def answer(stream: SocketStream) -> None:
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()

    async with (
        Upstream(answer) as upstream,
        Balancer([upstream.url], patience=0.2) as balancer,
        httpx2.AsyncClient(timeout=SOON) as client,
    ):
        assert (await client.get(balancer.url)).status_code == 502


async def test_a_client_that_leaves_closes_the_edges_connection() -> None:
    """An edge hears of a client's end at once, though it has nothing to send."""
    left = anyio.Event()

    async def answer(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: here\n\n")
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()
        left.set()

    async with (
        Upstream(answer) as upstream,
        Balancer([upstream.url]) as balancer,
        httpx2.AsyncClient(timeout=SOON) as client,
    ):
        async with client.stream("GET", balancer.url) as response:
            assert await anext(response.aiter_raw()) == b": here\n\n"
        with anyio.fail_after(SOON):
            await left.wait()


async def test_an_edge_that_dies_in_its_response_cuts_the_clients() -> None:
    """A response that was not finished does not look finished to the client."""

    async def answer(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")

    async with (
        Upstream(answer) as upstream,
        Balancer([upstream.url]) as balancer,
        await connect(balancer.url) as stream,
    ):
        await stream.send(b"GET /mcp HTTP/1.1\r\nHost: here\r\n\r\n")
        assert (await closed(stream)).endswith(b"\r\n\r\n4\r\nhalf\r\n")


async def test_an_edge_that_closes_unanswered_is_a_502() -> None:
    """The client is told, and its next request goes to the next edge."""

    async def answer(stream: SocketStream) -> None:
        """Close at once."""

    async with (
        Upstream(answer) as dying,
        Upstream(saying(b"well")) as well,
        Balancer([dying.url, well.url]) as balancer,
        httpx2.AsyncClient() as client,
    ):
        assert (await client.get(balancer.url)).status_code == 502
        assert (await client.get(balancer.url)).text == "well"


async def test_an_edge_that_cannot_be_reached_is_a_502() -> None:
    """A refused connection ends the request, not the balancer."""
    async with Upstream(saying(b"")) as upstream:
        url = upstream.url
    async with Balancer([url]) as balancer, httpx2.AsyncClient() as client:
        assert (await client.get(balancer.url)).status_code == 502
        assert (await client.get(balancer.url)).status_code == 502


async def test_an_answer_that_comes_before_the_body_keeps_the_connection() -> None:
    """An edge may refuse a request by its head: the client reads the answer, and goes on."""
    async with (
        Upstream(saying(b"refused")) as a,
        Upstream(saying(b"second")) as b,
        Balancer([a.url, b.url]) as balancer,
        await connect(balancer.url) as stream,
    ):
        await stream.send(b"POST /mcp HTTP/1.1\r\nHost: here\r\nContent-Length: 7\r\n\r\n")
        assert (await stream.receive()).startswith(b"HTTP/1.1 200 ")
        await stream.send(b"the end")
        await stream.send(b"GET /mcp HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        assert b"second" in await closed(stream)


async def test_the_next_request_waits_until_the_one_before_is_answered() -> None:
    """A client may send ahead: the answers come in the order of the requests."""
    async with (
        Upstream(saying(b"first")) as a,
        Upstream(saying(b"second")) as b,
        Balancer([a.url, b.url]) as balancer,
        await connect(balancer.url) as stream,
    ):
        await stream.send(b"GET /mcp HTTP/1.1\r\nHost: here\r\n\r\n")
        await stream.send(b"GET /mcp HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        received = await closed(stream)
        assert received.index(b"first") < received.index(b"second")


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"GET /mcp HTTP/1.1\r\n\r\n", b"400"), (b"GET /mcp HTTP/1.0\r\n\r\n", b"505"), (b"no HTTP\r\n\r\n", b"400")],
)
async def test_what_cannot_be_passed_on_is_refused(sent: bytes, status: bytes) -> None:
    """The client hears why, and no edge does."""
    async with Balancer(["http://127.0.0.1:9/mcp"]) as balancer, await connect(balancer.url) as stream:
        await stream.send(sent)
        assert (await closed(stream)).startswith(b"HTTP/1.1 " + status)
        assert balancer.served == [0]


async def test_the_callers_own_error_passes_through() -> None:
    """A failed assertion of a test is not wrapped by the balancer that it used."""
    with pytest.raises(LookupError):
        async with Balancer(["http://127.0.0.1:9/mcp"]) as balancer, await connect(balancer.url):
            raise LookupError
