"""One request's two ends: what is read of it, and the one answer."""

from __future__ import annotations

import time

import anyio
import pytest

from mcpfleet.edge.transport.http_exchange import ClientGone, HttpExchange
from mcpfleet.wire.errors import Rejection
from tests.unit.edge.asgi import Exchange, Post

pytestmark = pytest.mark.usefixtures("jumping")


@pytest.mark.parametrize("parts", [[b"abc"], [b"a", b"b", b"c"], [b"", b"abc", b""]])
async def test_a_body_is_read_whole(parts: list[bytes]) -> None:
    assert await Exchange(Post(), parts=parts).client().read_body(3, 5.0) == b"abc"


@pytest.mark.rule("M13")
async def test_a_body_over_the_limit_is_413_before_it_is_whole() -> None:
    """The rest stays unread, so the connection cannot be used again."""
    exchange = Exchange(Post(), parts=[b"ab", b"cd", b"never read"])
    with pytest.raises(Rejection) as raised:
        await exchange.client().read_body(3, 5.0)
    assert (raised.value.status, raised.value.headers) == (413, {"Connection": "close"})
    assert (await exchange.receive())["body"] == b"never read"


async def test_room_is_asked_for_as_a_body_arrives_and_never_for_what_is_over_the_limit() -> None:
    charged: list[int] = []

    async def charge(size: int) -> None:
        charged.append(size)

    exchange = Exchange(Post(), parts=[b"ab", b"c", b"def"])
    with pytest.raises(Rejection):
        await exchange.client().read_body(5, 5.0, charge)
    assert charged == [2, 1]


@pytest.mark.parametrize(("stated", "size"), [("4", 4), ("5", 5), ("0", 0), ("x", None), ("-1", None), (None, None)])
def test_a_body_is_as_large_as_its_head_says_if_it_does(stated: str | None, size: int | None) -> None:
    assert Exchange(Post(headers={"content-length": stated})).client().stated_size(5) == size


@pytest.mark.rule("M13")
@pytest.mark.parametrize("stated", ["6", "9" * 30])
def test_a_body_that_says_that_it_is_too_large_is_413_unread(stated: str) -> None:
    with pytest.raises(Rejection) as raised:
        Exchange(Post(headers={"content-length": stated})).client().stated_size(5)
    assert raised.value.status == 413


async def test_a_body_that_does_not_come_is_408_after_a_time() -> None:
    exchange = Exchange(Post(), parts=[])
    began = time.monotonic()
    with anyio.fail_after(5), pytest.raises(Rejection) as raised:
        await exchange.client().read_body(3, 0.1)
    assert raised.value.status == 408
    assert time.monotonic() - began >= 0.1


async def test_a_client_that_leaves_before_its_request_is_whole_is_gone() -> None:
    exchange = Exchange(Post(), parts=[])
    exchange.leave()
    with pytest.raises(ClientGone):
        await exchange.client().read_body(3, 5.0)


async def test_a_client_that_leaves_is_noticed() -> None:
    exchange = Exchange(Post(), parts=[])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.client().wait_gone)
        exchange.leave()


@pytest.mark.rule("T4")
async def test_an_answer_without_a_body_has_no_type() -> None:
    exchange = Exchange(Post())
    await exchange.client().answer(202)
    assert (exchange.status, exchange.body, exchange.headers) == (202, b"", {b"content-length": b"0"})


@pytest.mark.rule("T43")
async def test_an_answer_without_content_states_no_length() -> None:
    exchange = Exchange(Post())
    await exchange.client().answer(204, headers={"Allow": "GET"})
    assert (exchange.status, exchange.body, exchange.headers) == (204, b"", {b"allow": b"GET"})


async def test_an_answer_with_a_body_is_json() -> None:
    exchange = Exchange(Post())
    await exchange.client().answer(503, b"{}", {"Retry-After": "2"})
    assert exchange.headers == {
        b"content-type": b"application/json",
        b"x-content-type-options": b"nosniff",
        b"content-length": b"2",
        b"retry-after": b"2",
    }


@pytest.mark.rule("M11")
async def test_a_stream_tells_proxies_to_hold_nothing_back() -> None:
    exchange = Exchange(Post())
    client = exchange.client()
    await client.open_stream()
    await client.send_part(b"event: message\n")
    ongoing = exchange.is_over, client.is_streaming
    await client.close_stream()
    assert (ongoing, exchange.is_over) == ((False, True), True)
    nosniff = {b"x-content-type-options": b"nosniff"}
    assert exchange.headers == {b"content-type": b"text/event-stream", b"x-accel-buffering": b"no", **nosniff}


@pytest.mark.rule("D14")
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_draining_edge_tells_its_client_to_make_a_new_connection(version: str) -> None:
    exchange = Exchange(Post(http_version=version))
    await exchange.client(closing=True).answer(200, b"{}")
    assert exchange.headers[b"connection"] == b"close"


async def test_http2_has_no_such_header() -> None:
    exchange = Exchange(Post(http_version="2"))
    await exchange.client(closing=True).answer(200, b"{}")
    assert b"connection" not in exchange.headers


async def test_an_edge_that_drains_answers_413_with_one_connection_header() -> None:
    exchange = Exchange(Post())
    await exchange.client(closing=True).answer(413, headers={"Connection": "close"})
    assert exchange.headers[b"connection"] == b"close"


@pytest.mark.rule("D15")
async def test_what_cannot_be_answered_is_cut_and_not_ended() -> None:
    """A promised byte never comes: to the client the connection broke, which downgrades nobody."""
    exchange = Exchange(Post())
    await exchange.client().cut()
    assert int(exchange.headers[b"content-length"]) > 0
    assert not exchange.is_over


def test_the_address_may_be_unknown() -> None:
    exchange = Exchange(Post())
    exchange.scope["client"] = None
    assert (
        HttpExchange(exchange.scope, exchange.receive, exchange.send, closing=False, write_timeout=5.0).address is None
    )
