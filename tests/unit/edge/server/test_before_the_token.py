"""A request costs little before its token is judged: little is read or kept, and no turn of the loop is long."""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcpfleet.bus.errors import Unanswered
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.wire.headers import Headers
from tests.kit.cost import cost, parse, seconds, uncollected
from tests.unit.edge import played_edge
from tests.unit.edge.asgi import Exchange, Post, call, request

pytestmark = pytest.mark.usefixtures("jumping")

LARGE = 1_000
SETTINGS = EdgeSettings(
    authorization="static",
    public_url="http://127.0.0.1:8000",
    max_request=7_000_000,
    large_body=LARGE,
    request_room=1,
    queue_wait=0.05,
)
"""A request that gets as far as the room for large bodies finds none, and is told so by a 503."""
STATED: dict[str, str | None] = {"authorization": "Bearer token", "content-length": str(LARGE + 1)}
UNSAID: dict[str, str | None] = {"authorization": "Bearer token", "transfer-encoding": "chunked"}
BODIES = [
    pytest.param(STATED, [], id="stated"),
    pytest.param(UNSAID, [b"x" * LARGE, b"x"], id="over it by a byte"),
    pytest.param(UNSAID, [b"x" * (LARGE + 1)], id="over it at once"),
]


class Unfinished(Exchange):
    """A request whose body never comes to its end."""

    async def receive(self) -> MutableMapping[str, Any]:
        """ASGI's way in."""
        message = await super().receive()
        return {**message, "more_body": True} if message["type"] == "http.request" else message


async def answered(edge: played_edge.Edge, exchange: Exchange) -> Exchange:
    with anyio.fail_after(5):
        await edge.application(exchange.scope, exchange.receive, exchange.send)
    return exchange


@pytest.mark.rule("T29")
@pytest.mark.parametrize(("headers", "parts"), BODIES)
async def test_a_large_body_is_read_no_further_where_its_token_is_refused(
    headers: dict[str, str | None], parts: list[bytes]
) -> None:
    async with played_edge.edge(settings=SETTINGS) as edge:
        edge.authorization.principal = None
        exchange = await answered(edge, Unfinished(Post(headers=headers), parts=parts))
    assert exchange.status == 401
    assert "id" not in exchange.json
    assert exchange.headers[b"connection"] == b"close"
    assert len(edge.authorization.admits) == 1


@pytest.mark.rule("T29")
@pytest.mark.parametrize(("headers", "parts"), BODIES)
async def test_a_large_body_is_read_no_further_where_nobody_judges_its_token(
    headers: dict[str, str | None], parts: list[bytes]
) -> None:
    async with played_edge.edge(settings=SETTINGS) as edge:
        edge.authorization.error = Unanswered("nobody")
        exchange = await answered(edge, Unfinished(Post(headers=headers), parts=parts))
    assert exchange.status == 504
    assert "id" not in exchange.json


@pytest.mark.rule("T29")
@pytest.mark.parametrize("headers", [STATED | {"content-length": "5000"}, UNSAID])
async def test_a_large_body_takes_room_once_its_token_is_known_to_be_good(headers: dict[str, str | None]) -> None:
    async with played_edge.edge(settings=SETTINGS) as edge:
        exchange = await answered(edge, Exchange(Post(headers=headers), parts=[b"x" * 2_500] * 2))
    assert exchange.status == 503
    assert len(edge.authorization.admits) == 1, "it is asked once, however many parts come"


@pytest.mark.rule("T29")
async def test_a_small_body_is_judged_before_its_token() -> None:
    async with played_edge.edge(settings=SETTINGS) as edge:
        edge.authorization.principal = None
        exchange = await answered(edge, Exchange(Post(headers=UNSAID), parts=[b"x" * LARGE]))
    assert exchange.json["error"]["code"] == -32700
    assert edge.authorization.admits == []


@pytest.mark.rule("T29")
async def test_where_nobody_needs_a_token_nothing_is_asked_before_the_body() -> None:
    settings = EdgeSettings(max_request=7_000_000, large_body=LARGE)
    async with played_edge.edge(settings=settings) as edge:
        exchange = await answered(edge, Exchange(Post(raw=b"x" * 5_000)))
    assert exchange.json["error"]["code"] == -32700
    assert edge.authorization.admits == []


@asynccontextmanager
async def strangers(edge: played_edge.Edge, size: int) -> AsyncIterator[None]:
    """Small bodies that never end, whose tokens nobody has judged, and so many bytes of them."""
    waiting = [Unfinished(Post(headers=UNSAID), parts=[b"x" * (size // 2)]) for _ in range(2)]
    async with anyio.create_task_group() as tasks:
        for each in waiting:
            tasks.start_soon(edge.application, each.scope, each.receive, each.send)
        await anyio.wait_all_tasks_blocked()
        assert edge.authorization.admits == []
        yield
        for each in waiting:
            each.leave()


@pytest.mark.rule("T38")
@pytest.mark.parametrize("headers", [UNSAID, {"authorization": "Bearer token", "content-length": "3"}])
async def test_where_bodies_that_arrive_fill_their_room_a_stranger_is_refused(
    headers: dict[str, str | None],
) -> None:
    settings = SETTINGS.model_copy(update={"arriving_room": 800})
    async with played_edge.edge(settings=settings) as edge:
        edge.authorization.principal = None
        async with strangers(edge, 800):
            exchange = await answered(edge, Unfinished(Post(headers=headers), parts=[b"x"]))
        assert exchange.status == 401
        assert "id" not in exchange.json
        edge.authorization.admits.clear()
        whole = await answered(edge, Exchange(Post(headers=headers), parts=[b"x", b"yz"]))
    assert whole.json["error"]["code"] == -32700, "those who left gave their room back, and nobody is judged early"
    assert edge.authorization.admits == []


@pytest.mark.rule("T38")
async def test_a_known_caller_takes_room_as_a_large_body_does_where_the_other_is_full() -> None:
    settings = SETTINGS.model_copy(update={"arriving_room": 800, "request_room": 10_000})
    async with played_edge.edge(settings=settings) as edge, strangers(edge, 800):
        known = await answered(edge, Exchange(Post(headers=UNSAID), parts=[b"x", b"y"]))
        assert known.json["error"]["code"] == -32700, "its body was read to its end"
        assert len(edge.authorization.admits) == 1


@pytest.mark.rule("T38")
async def test_where_nobody_needs_a_token_both_rooms_bound_what_arrives() -> None:
    settings = EdgeSettings(large_body=LARGE, arriving_room=800, request_room=1, queue_wait=0.05)
    async with played_edge.edge(settings=settings) as edge, strangers(edge, 800):
        exchange = await answered(edge, Unfinished(Post(headers=UNSAID), parts=[b"x" * 100]))
    assert exchange.status == 503


async def test_a_stream_keeps_nothing_of_the_large_body_that_asked_for_it() -> None:
    """The body's room is given back when the stream begins, so its memory must be free, too."""
    others = {"other": "a" * 2_000_000}
    listen = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}, **others}, meta=others)
    body = json.dumps(listen).encode() + b" " * 2_000_000
    async with played_edge.edge(played_edge.tool(), settings=EdgeSettings(max_request=7_000_000)) as edge:
        exchange = Exchange(Post(message=listen), parts=[body[at : at + 65_536] for at in range(0, len(body), 65_536)])
        tracemalloc.start()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(edge.application, exchange.scope, exchange.receive, exchange.send)
                await exchange.events(1)
                kept, _ = tracemalloc.get_traced_memory()
                exchange.leave()
        finally:
            tracemalloc.stop()
    assert kept < 1_000_000


@pytest.mark.parametrize("member", ["clientInfo", "clientCapabilities"])
async def test_a_listen_whose_client_says_too_much_of_itself_is_refused(member: str) -> None:
    """A stream keeps both for its life, beyond what the request's room accounts for."""
    said = {f"io.modelcontextprotocol/{member}": {"name": "a" * 17_000, "version": "1"}}
    listen = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, meta=said)
    async with played_edge.edge(played_edge.tool()) as edge:
        answer = await answered(edge, Exchange(Post(message=listen)))
    assert (answer.status, answer.json["error"]["code"]) == (400, -32602)


async def longest_turn(edge: played_edge.Edge, exchange: Exchange) -> float:
    """The processor's seconds for which the loop ran nothing else at the longest, while a request was answered."""
    longest, last = 0.0, time.thread_time()

    async def watch() -> None:
        nonlocal longest, last
        while True:
            await anyio.lowlevel.checkpoint()
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await answered(edge, exchange)
        tasks.cancel_scope.cancel()
    return longest


async def cost_of_longest_turn(edge: played_edge.Edge, make: Callable[[], Exchange]) -> float:
    """The parses that the longest turn of such a request costs at best."""
    best = unit = math.inf
    with uncollected():
        for _ in range(3):
            unit = min(unit, seconds(parse))
            best = min(best, await longest_turn(edge, make()))
    return best / unit


def nested(name: str, value: bytes) -> bytes:
    """A call whose `_meta` has something besides."""
    return json.dumps(call(meta={name: "here"})).encode().replace(b'"here"', value)


@pytest.mark.rule("T31")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" + b"[]," * 2_000_000 + b"[]]", id="lists"),
        pytest.param(nested("any", b"[" + b'{"a":1},' * 33_000 + b'"' + b"a" * 5_000_000 + b'"]'), id="objects"),
        pytest.param(nested("any", b'["' + rb"\ud83d\ude00" * 500_000 + b'"]'), id="pairs of surrogates"),
        pytest.param(nested("any", b"[" + b"[" * 2_000_000), id="levels"),
        pytest.param(b"[" + b"9" * 6_000_000 + b"]", id="digits"),
    ],
)
async def test_a_request_holds_the_loop_for_no_long_turn(body: bytes) -> None:
    exchanges: list[Exchange] = []

    def make() -> Exchange:
        parts = [body[at : at + 65_536] for at in range(0, len(body), 65_536)]
        exchanges.append(Exchange(Post(raw=body), parts=parts))
        return exchanges[-1]

    async with played_edge.edge(settings=EdgeSettings(max_request=7_000_000)) as edge:
        assert await cost_of_longest_turn(edge, make) < 8
    assert all(exchange.status >= 400 for exchange in exchanges)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"accept": "," * 64_000}, id="an Accept of commas"),
        pytest.param({"accept": "a;q=0," * 10_000}, id="an Accept of weights"),
        pytest.param({"content-type": "a;" * 32_000}, id="a Content-Type of parameters"),
        pytest.param({"host": "1" * 64_000}, id="a Host of digits"),
        pytest.param({"authorization": "Bearer " + "a" * 64_000}, id="a long token"),
        pytest.param({"mcp-name": f"=?base64?{'a' * 64_000}?="}, id="a long name"),
        pytest.param({"traceparent": "00-" + "a" * 64_000}, id="a long traceparent"),
    ],
)
async def test_no_header_holds_the_loop_for_a_long_turn(headers: dict[str, str | None]) -> None:
    async with played_edge.edge(played_edge.tool(), settings=EdgeSettings(queue_wait=0.01)) as edge:
        assert await cost_of_longest_turn(edge, lambda: Exchange(Post(headers=headers))) < 2


def test_a_head_of_one_header_ten_thousand_times_is_sorted_out_at_once() -> None:
    pairs = [(b"a", b"%d" % number) for number in range(16_000)]
    assert cost(lambda: Headers(pairs)) < 3
    headers = Headers(pairs)
    assert headers.all(b"a") == tuple(b"%d" % number for number in range(16_000))
