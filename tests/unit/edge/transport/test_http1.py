"""The short way of a whole answer: the same bytes as Hypercorn's own way, and the same connection afterwards."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from mcpfleet.edge.transport.http_exchange import HttpExchange
from mcpfleet.edge.transport.hypercorn import lifetimes
from mcpfleet.edge.transport.hypercorn.http1 import Http1
from tests.unit.edge.http_server import connect, serving

HEAD = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n"


class Echo:
    """An application that reads a request whole and answers it with a status, headers and its own body."""

    def __init__(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.status, self.headers = status, headers or {}
        self.failed: Exception | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        client = HttpExchange(scope, receive, send, closing=False, write_timeout=5.0)
        body = await client.read_body(1000, 5.0)
        try:
            await client.answer(self.status, body, self.headers)
        except Exception as error:
            self.failed = error
            raise


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Which answers took the short way."""
    taken: list[bool] = []
    answer = Http1.answer

    async def watched(self: Http1, *arguments: Any) -> bool:
        taken.append(await answer(self, *arguments))
        return taken[-1]

    monkeypatch.setattr(Http1, "answer", watched)
    return taken


async def exchange(stream: SocketStream, request: bytes) -> bytes:
    """Send a request; returns all that comes until its body has come, or the connection ends."""
    await stream.send(request)
    came = b""
    while not re.search(rb"\r\n\r\n..", came, re.DOTALL):
        try:
            came += await stream.receive()
        except anyio.EndOfStream:
            break
    return re.sub(rb"date: [^\r]*", b"date: now", came)


@pytest.mark.parametrize("status", [200, 202, 401, 503])
async def test_the_bytes_are_those_of_hypercorns_own_way(
    status: int, short: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(Echo(status, {"WWW-Authenticate": 'Bearer scope="a, b"'})) as config:
        async with await connect(config) as stream:
            ours = [await exchange(stream, HEAD + b"\r\n{}") for _ in range(2)]
        assert short == [True, True]

        async def never(*_: Any) -> bool:
            return False

        monkeypatch.setattr(Http1, "answer", never)
        async with await connect(config) as stream:
            theirs = [await exchange(stream, HEAD + b"\r\n{}") for _ in range(2)]
    assert ours == theirs
    assert ours[0].startswith(b"HTTP/1.1 %d \r\n" % status)


async def test_requests_that_were_sent_together_are_answered_in_their_order(short: list[bool]) -> None:
    async with serving(Echo()) as config, await connect(config) as stream:
        await stream.send(HEAD + b"\r\nab" + HEAD + b"\r\ncd" + HEAD + b"\r\nef" + HEAD[:20])
        came = b""
        while came.count(b"\r\n\r\n") < 3 or not came.endswith(b"ef"):
            came += await stream.receive()
        assert (await exchange(stream, HEAD[20:] + b"\r\ngh")).endswith(b"gh")
    assert re.findall(rb"\r\n\r\n(..)", came) == [b"ab", b"cd", b"ef"]
    assert short == [True] * 4


@pytest.mark.parametrize("extra", [b"connection: close\r\n", b"connection: Close, x\r\n"])
async def test_a_client_that_asks_for_the_end_gets_it(extra: bytes, short: list[bool]) -> None:
    async with serving(Echo()) as config, await connect(config) as stream:
        answer = await exchange(stream, HEAD + extra + b"\r\n{}")
        assert b"connection: close" in answer.lower()
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
    assert short == [False]


async def test_an_answer_to_http_1_0_ends_its_connection(short: list[bool]) -> None:
    async with serving(Echo()) as config, await connect(config) as stream:
        assert (await exchange(stream, HEAD.replace(b"1.1", b"1.0") + b"\r\n{}")).endswith(b"{}")
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
    assert short == [False]


@pytest.mark.parametrize("value", ["a\r\nset-cookie: b", "a\nb", "a\x00b"])
async def test_a_header_that_would_be_two_is_not_written(value: str, short: list[bool]) -> None:
    echo = Echo(headers={"X-Reason": value})
    async with serving(echo) as config, await connect(config) as stream:
        answer = await exchange(stream, HEAD + b"\r\n{}")
    assert b"set-cookie" not in answer
    assert echo.failed is not None
    assert short == [False]


async def test_the_answer_to_a_head_request_has_no_body(short: list[bool]) -> None:
    async with serving(Echo()) as config, await connect(config) as stream:
        await stream.send(b"HEAD / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}")
        answer = await stream.receive()
        assert answer.endswith(b"\r\n\r\n")
    assert short == [False]


class Refusing:
    """An application that answers by a request's head."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await HttpExchange(scope, receive, send, closing=False, write_timeout=5.0).answer(401, b"{}")


UPLOADS = {
    "with a length": b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 7000000\r\n\r\n" + b"x" * 7_000_000,
    "in chunks": b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    + (b"f4240\r\n" + b"x" * 1_000_000 + b"\r\n") * 7
    + b"0\r\n\r\n",
    "with another request behind": b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 7000000\r\n\r\n"
    + b"x" * 7_000_000
    + b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
}


@pytest.mark.rule("T41")
@pytest.mark.parametrize("name", UPLOADS)
async def test_a_client_that_sends_its_whole_body_first_reads_why_it_was_refused(name: str) -> None:
    """Else one whose token has expired hears of a broken connection, and never gets another token."""
    async with serving(Refusing()) as config, await connect(config) as stream:
        await stream.send(UPLOADS[name])
        answer = b""
        try:
            while True:
                answer += await stream.receive()
        except anyio.EndOfStream:
            pass
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.rule("T41")
async def test_a_client_that_sends_without_end_is_cut_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetimes, "LINGER", 0.3)
    async with serving(Refusing(), within=10) as config, await connect(config) as stream:
        await stream.send(UPLOADS["with a length"][:1000])
        with pytest.raises(anyio.BrokenResourceError):
            await drip(stream)


async def drip(stream: SocketStream) -> None:
    """Send a byte now and then, until the connection breaks."""
    while True:
        await stream.send(b"x")
        await anyio.sleep(0.02)
