"""The edge's HTTP face: what each request is answered with, and what stays silent."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from mcpfleet.bus.errors import Unanswered
from tests.unit.edge.asgi import Exchange, Post, call, request
from tests.unit.edge.played_edge import Catalog, Edge, edge, tool

pytestmark = pytest.mark.usefixtures("jumping")


def error_of(exchange: Exchange) -> tuple[int, int]:
    return exchange.status, exchange.json["error"]["code"]


# -- ids and silence -------------------------------------------------------------------------------------------------


@pytest.mark.rule("T13")
async def test_a_notification_is_admitted_like_a_request() -> None:
    async with edge() as served:
        served.authorization.error = Unanswered("authorization.admit")
        exchange = await served.answer(Post({"jsonrpc": "2.0", "method": "notifications/cancelled"}))
    assert (exchange.status, exchange.body) == (504, b"")


@pytest.mark.rule("T6")
async def test_two_requests_at_once_may_carry_the_same_id() -> None:
    answers: list[Exchange] = []
    async with edge(tool()) as served, anyio.create_task_group() as tasks:

        async def ask() -> None:
            answers.append(await served.answer(Post(request("tools/list"))))

        tasks.start_soon(ask)
        tasks.start_soon(ask)
    assert [(answer.status, answer.json["id"]) for answer in answers] == [(200, 1), (200, 1)]


# -- methods ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("D15")
async def test_discover_is_answered_from_memory_without_authorization_or_a_bus() -> None:
    async with edge(tool()) as served:
        served.authorization.error = Unanswered("authorization.admit")
        exchange = await served.answer(Post(request("server/discover")))
    assert exchange.status == 200
    assert exchange.json["result"]["capabilities"] == {"tools": {"listChanged": True}, "logging": {}}


@pytest.mark.rule("D15")
async def test_discover_is_answered_by_an_edge_that_drains() -> None:
    async with edge(tool()) as served:
        served.application.is_draining = True
        exchange = await served.answer(Post(request("server/discover")))
    assert (exchange.status, exchange.headers[b"connection"]) == (200, b"close")


@pytest.mark.rule("M32")
async def test_discover_that_cannot_be_answered_truly_ends_the_connection() -> None:
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


async def test_tools_are_listed_with_the_servers_name() -> None:
    async with edge(tool("add"), tool("search")) as served:
        result = (await served.answer(Post(request("tools/list")))).json["result"]
    assert [listed["name"] for listed in result["tools"]] == ["add", "search"]
    assert result["_meta"] == {"io.modelcontextprotocol/serverInfo": {"name": "library", "version": "1"}}


@pytest.mark.rule("D4")
async def test_a_call_that_nobody_can_take_is_503_after_a_bounded_wait() -> None:
    """Nothing was sent: the edge has no link to NATS."""
    async with edge(tool()) as served:
        exchange = await served.answer(Post(call()))
    assert error_of(exchange) == (503, -32603)
    delay = int(exchange.headers[b"retry-after"])
    assert exchange.json["error"]["data"] == {"retryAfter": delay}
    assert 1 <= delay <= 3


@pytest.mark.rule("D3")
async def test_a_mistake_of_ours_is_500_with_a_reference_that_the_log_has() -> None:
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


@pytest.mark.rule("M15")
async def test_nothing_is_answered_to_a_client_that_left_before_its_request_was_whole() -> None:
    async with edge(tool()) as served:
        exchange = Exchange(Post(), parts=[])
        exchange.leave()
        await served.application(exchange.scope, exchange.receive, exchange.send)
    assert exchange.sent == []


@pytest.mark.parametrize("name", [None, 5, [None], {}])
async def test_a_name_that_is_no_text_is_a_clients_mistake_on_the_revisions_of_2025_too(name: Any) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}}
    async with edge(tool()) as served:
        exchange = await served.answer(Post(message, {"mcp-protocol-version": "2025-11-25", "mcp-name": None}))
    assert error_of(exchange) == (200, -32602)
