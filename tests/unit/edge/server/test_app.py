"""The edge's HTTP face: what each request is answered with, and what stays silent."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

import anyio
import pytest

from mcpfleet.bus.errors import Unanswered
from tests.unit.edge.asgi import CAPABILITIES_KEY, Exchange, Post, call, request
from tests.unit.edge.played_edge import Catalog, Edge, edge, tool

pytestmark = pytest.mark.usefixtures("jumping")


def error_of(exchange: Exchange) -> tuple[int, int]:
    return exchange.status, exchange.json["error"]["code"]


# -- ids and silence -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("identifier", [1, "1", 0, "", 2**70])
async def test_m2_every_error_after_the_id_was_readable_carries_it_as_it_came(identifier: Any) -> None:
    """TypeScript drops a 400 whose id does not match."""
    spoiled = [
        Post(call("unknown", identifier=identifier)),
        Post(request("tools/burn", identifier=identifier)),
        Post({"jsonrpc": "1.0", "id": identifier, "method": "tools/list"}),
        Post(call(identifier=identifier), {"mcp-name": "another"}),
    ]
    async with edge(tool()) as served:
        for post in spoiled:
            echo = (await served.answer(post)).json["id"]
            assert (type(echo), echo) == (type(identifier), identifier)


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"id":null,"jsonrpc":"2.0","method":"tools/list"}', b"null"])
async def test_m2_an_error_without_a_readable_id_has_none(raw: bytes) -> None:
    async with edge() as served:
        exchange = await served.answer(Post(raw=raw))
    assert exchange.status == 400
    assert "id" not in exchange.json


async def test_d18_an_id_that_cannot_be_repeated_is_answered_without_one() -> None:
    raw = rb'{"jsonrpc":"2.0","id":"\ud800","method":"tools/list"}'
    async with edge() as served:
        exchange = await served.answer(Post(raw=raw))
    assert exchange.status == 400
    assert "id" not in exchange.json


@pytest.mark.parametrize(
    ("post", "status"),
    [
        (Post(path="/other"), 404),
        (Post(headers={"host": "evil.example.com"}), 403),
        (Post(headers={"origin": "null"}), 403),
        (Post(method="GET"), 405),
        (Post(headers={"content-type": "text/plain"}), 415),
        (Post(headers={"accept": "text/html"}), 406),
        (Post(raw=b" " * 100_001), 413),
    ],
)
async def test_t33_what_the_head_or_the_size_tells_is_refused_with_a_reason_and_no_id(post: Post, status: int) -> None:
    """The error has no `id`, also no null: clients read several forms, and the specification has this one."""
    async with edge() as served:
        exchange = await served.answer(post)
    assert exchange.status == status
    assert exchange.json["error"]["message"]
    assert exchange.json == {"jsonrpc": "2.0", "error": {"code": -32600, "message": ANY}}


async def test_m9_an_accepted_notification_is_202_and_empty() -> None:
    """T15: the official TypeScript client does post its cancellations."""
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    async with edge() as served:
        exchange = await served.answer(Post(message, {"mcp-method": None}))
    assert (exchange.status, exchange.body) == (202, b"")


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/unknown"},
        {"jsonrpc": "1.0", "method": "notifications/cancelled"},
        {"jsonrpc": "2.0", "method": "notifications/unknown", "params": []},
    ],
)
async def test_t4_a_refused_notification_never_gets_a_body(message: dict[str, Any]) -> None:
    async with edge() as served:
        exchange = await served.answer(Post(message))
    assert (exchange.status, exchange.body) == (400, b"")


async def test_t13_a_notification_is_admitted_like_a_request() -> None:
    async with edge() as served:
        served.authorization.error = Unanswered("authorization.admit")
        exchange = await served.answer(Post({"jsonrpc": "2.0", "method": "notifications/cancelled"}))
    assert (exchange.status, exchange.body) == (504, b"")


@pytest.mark.parametrize("secret", ["se-cret", "se cret\u2028"])
async def test_t16_an_error_repeats_nothing_that_a_client_sent_but_the_id(secret: str) -> None:
    message = call(secret, {secret: secret}, meta={f"com.example/{secret}": secret})
    async with edge(tool()) as served:
        exchange = await served.answer(Post(message, {"mcp-name": None} if "\u2028" in secret else {}))
    assert exchange.status == 400
    assert "cret" not in exchange.body.decode()


async def test_t6_two_requests_at_once_may_carry_the_same_id() -> None:
    answers: list[Exchange] = []
    async with edge(tool()) as served, anyio.create_task_group() as tasks:

        async def ask() -> None:
            answers.append(await served.answer(Post(request("tools/list"))))

        tasks.start_soon(ask)
        tasks.start_soon(ask)
    assert [(answer.status, answer.json["id"]) for answer in answers] == [(200, 1), (200, 1)]


# -- methods ---------------------------------------------------------------------------------------------------------


async def test_d15_discover_is_answered_from_memory_without_authorization_or_a_bus() -> None:
    async with edge(tool()) as served:
        served.authorization.error = Unanswered("authorization.admit")
        exchange = await served.answer(Post(request("server/discover")))
    assert exchange.status == 200
    assert exchange.json["result"]["capabilities"] == {"tools": {"listChanged": True}, "logging": {}}


async def test_d15_discover_is_answered_by_an_edge_that_drains() -> None:
    async with edge(tool()) as served:
        served.application.is_draining = True
        exchange = await served.answer(Post(request("server/discover")))
    assert (exchange.status, exchange.headers[b"connection"]) == (200, b"close")


async def test_m32_discover_that_cannot_be_answered_truly_ends_the_connection() -> None:
    """A 503 on this probe makes clients settle on the older protocol for good."""
    served = Edge(Catalog())
    exchange = await served.answer(Post(request("server/discover")))
    assert not exchange.is_over
    assert exchange.body == b""


async def test_a_catalog_that_was_never_heard_is_504() -> None:
    exchange = await Edge(Catalog()).answer(Post(request("tools/list")))
    assert error_of(exchange) == (504, -32603)


async def test_an_authorization_that_does_not_answer_is_504() -> None:
    async with edge(tool()) as served:
        served.authorization.error = Unanswered("authorization.admit")
        assert error_of(await served.answer(Post(call()))) == (504, -32603)


async def test_a_refused_caller_is_401_with_a_challenge_and_its_id() -> None:
    async with edge(tool()) as served:
        served.authorization.principal = None
        exchange = await served.answer(Post(call(identifier="a")))
    assert error_of(exchange) == (401, -32603)
    assert exchange.json["id"] == "a"
    assert exchange.headers[b"www-authenticate"].startswith(b"Bearer")


async def test_tools_are_listed_with_the_servers_name() -> None:
    async with edge(tool("add"), tool("search")) as served:
        result = (await served.answer(Post(request("tools/list")))).json["result"]
    assert [listed["name"] for listed in result["tools"]] == ["add", "search"]
    assert result["_meta"] == {"io.modelcontextprotocol/serverInfo": {"name": "library", "version": "1"}}


@pytest.mark.parametrize("message", [request("tools/list"), call()])
async def test_m14_without_tools_their_methods_are_unknown(message: dict[str, Any]) -> None:
    async with edge() as served:
        assert error_of(await served.answer(Post(message))) == (404, -32601)


async def test_t12_an_unknown_tool_is_invalid_params() -> None:
    async with edge(tool()) as served:
        assert error_of(await served.answer(Post(call("find")))) == (400, -32602)


async def test_m6_a_tools_mirrored_argument_is_compared_with_its_header() -> None:
    mirrored = tool(region={"type": "string", "x-mcp-header": "Region"})
    post = Post(call(arguments={"region": "eu"}), {"mcp-param-region": "us"})
    async with edge(mirrored) as served:
        assert error_of(await served.answer(post)) == (400, -32020)


async def test_d16_a_client_that_could_not_answer_the_tools_questions_is_told_which() -> None:
    async with edge(tool(asks=("elicitation.form", "sampling"))) as served:
        exchange = await served.answer(Post(call(meta={CAPABILITIES_KEY: {"elicitation": {}}})))
    assert error_of(exchange) == (400, -32021)
    assert exchange.json["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}


async def test_t11_the_target_comes_before_its_headers_and_they_before_the_capabilities() -> None:
    picky = tool(asks=("sampling",), region={"type": "string", "x-mcp-header": "Region"})
    async with edge(picky) as served:
        unknown = await served.answer(Post(call("find"), {"mcp-param-region": "us"}))
        mismatched = await served.answer(Post(call(), {"mcp-param-region": "us"}))
        served.authorization.principal = None
        refused = await served.answer(Post(call("find"), {"mcp-param-region": "us"}))
    assert [error_of(each) for each in (unknown, mismatched, refused)] == [
        (400, -32602),
        (400, -32020),
        (401, -32603),
    ]


async def test_d4_a_call_that_nobody_can_take_is_503_after_a_bounded_wait() -> None:
    """Nothing was sent: the edge has no link to NATS."""
    async with edge(tool()) as served:
        exchange = await served.answer(Post(call()))
    assert error_of(exchange) == (503, -32603)
    delay = int(exchange.headers[b"retry-after"])
    assert exchange.json["error"]["data"] == {"retryAfter": delay}
    assert 1 <= delay <= 3


async def test_d3_a_mistake_of_ours_is_500_with_a_reference_that_the_log_has() -> None:
    async with edge(tool()) as served:
        served.authorization.error = RuntimeError("secret")
        exchange = await served.answer(Post(call()))
    assert error_of(exchange) == (500, -32603)
    assert "secret" not in exchange.body.decode()
    [line] = [line for line in served.log.entries if line["log_level"] == "error"]
    assert line["exc_info"]


# -- counting --------------------------------------------------------------------------------------------------------


async def test_rejections_are_counted_by_status_and_code() -> None:
    async with edge(tool()) as served:
        await served.answer(Post(method="GET"))
        await served.answer(Post(raw=b"{"))
        await served.answer(Post(raw=b"{"))
    counted = {point.labels: point.value for point in served.figures()["mcpfleet.edge.rejections"].points}
    assert counted == {("405", "-32600"): 1, ("400", "-32700"): 2}


async def test_names_that_callers_invent_are_no_labels() -> None:
    async with edge(tool()) as served:
        await served.answer(Post(call("invented")))
        await served.answer(Post(request("tools/list")))
    labels = [point.labels for point in served.figures()["mcp.server.operation.duration"].points]
    assert sorted(labels) == [
        ("tools/call", "", "2026-07-28", "-32602"),
        ("tools/list", "", "2026-07-28", ""),
    ]


async def test_an_edge_is_idle_once_its_last_request_is_answered() -> None:
    async with edge(tool()) as served:
        await served.application.wait_idle()
        slow = Exchange(Post(), parts=[])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(served.application, slow.scope, slow.receive, slow.send)
            await anyio.wait_all_tasks_blocked()
            with anyio.move_on_after(0.1) as waiting:
                await served.application.wait_idle()
            assert waiting.cancelled_caught
            slow.leave()
            with anyio.fail_after(5):
                await served.application.wait_idle()


async def test_m15_nothing_is_answered_to_a_client_that_left_before_its_request_was_whole() -> None:
    async with edge(tool()) as served:
        exchange = Exchange(Post(), parts=[])
        exchange.leave()
        await served.application(exchange.scope, exchange.receive, exchange.send)
    assert exchange.sent == []


@pytest.mark.parametrize("cursor", ["", "next", "x" * 10_000])
async def test_l16_a_cursor_that_we_did_not_make_is_invalid_params(cursor: str) -> None:
    """M47: the empty text is a cursor."""
    async with edge(tool()) as served:
        exchange = await served.answer(Post(request("tools/list", {"cursor": cursor})))
    assert (exchange.status, exchange.json["error"]["code"]) == (400, -32602)


@pytest.mark.parametrize(
    "method", ["resources/list", "prompts/list", "resources/templates/list", "completion/complete"]
)
async def test_m14_a_method_whose_capability_is_not_offered_is_unknown(method: str) -> None:
    params = {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": ""}}
    async with edge(tool()) as served:
        exchange = await served.answer(Post(request(method, params if method.startswith("comp") else {})))
    assert (exchange.status, exchange.json["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize("name", [None, 5, [None], {}])
async def test_a_name_that_is_no_text_is_a_clients_mistake_on_the_revisions_of_2025_too(name: Any) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}}
    async with edge(tool()) as served:
        exchange = await served.answer(Post(message, {"mcp-protocol-version": "2025-11-25", "mcp-name": None}))
    assert error_of(exchange) == (200, -32602)
