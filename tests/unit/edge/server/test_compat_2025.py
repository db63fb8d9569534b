"""The revisions of 2025 without a session: how they are answered."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.bus.errors import Unanswered
from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.wire.protocol import LEGACY
from tests.unit.edge.asgi import Exchange, Post
from tests.unit.edge.played_edge import SETTINGS, edge, tool


def legacy(method: str, params: dict[str, Any] | None = None, version: str | None = LEGACY[0], **fields: Any) -> Post:
    """A request as a client of 2025 sends it."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}} | fields
    headers = {"mcp-protocol-version": version, "mcp-method": None, "mcp-name": None}
    return Post(message, headers=headers)


def handshake(version: str = LEGACY[0], header: str | None = None) -> Post:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    return legacy("initialize", params, header)


WITHOUT_SESSIONS = SETTINGS.model_copy(update={"endpoints": {"mcp": Endpoint(path="/mcp", sessions=False)}})


async def answered(post: Post) -> Exchange:
    async with edge(tool(), settings=WITHOUT_SESSIONS) as served:
        return await served.answer(post)


@pytest.mark.rule("M74")
async def test_initialize_is_answered_without_a_session() -> None:
    exchange = await answered(handshake("2025-06-18"))
    assert exchange.json["result"] == {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "library", "version": "1"},
    }
    assert b"mcp-session-id" not in exchange.headers


@pytest.mark.rule("M78")
async def test_a_list_has_nothing_modern() -> None:
    result = (await answered(legacy("tools/list"))).json["result"]
    assert result.keys() == {"tools"}


@pytest.mark.rule("L2")
@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("nonsense", {}, -32601),
        ("prompts/list", {}, -32601),
        ("resources/subscribe", {"uri": "x:y"}, -32601),
        ("logging/setLevel", {"level": "info"}, -32601),
        ("server/discover", {}, -32601),
        ("tools/call", {}, -32602),
        ("tools/call", {"name": "unknown"}, -32602),
    ],
)
async def test_an_operations_error_is_http_200(method: str, params: dict[str, Any], code: int) -> None:
    exchange = await answered(legacy(method, params))
    assert (exchange.status, exchange.json["error"]["code"]) == (200, code)


@pytest.mark.rule("L2")
async def test_what_concerns_the_servers_capacity_keeps_its_status() -> None:
    async with edge(tool()) as served:
        served.authorization.error = Unanswered("authorization.admit")
        exchange = await served.answer(legacy("tools/list"))
    assert (exchange.status, exchange.json["error"]["code"]) == (504, -32603)


@pytest.mark.rule("M76")
async def test_without_sessions_get_and_delete_are_not_allowed() -> None:
    async with edge(tool()) as served:
        for method in ("GET", "DELETE"):
            exchange = await served.answer(Post(method=method, headers={"accept": "text/event-stream"}))
            assert (exchange.status, exchange.headers[b"allow"]) == (405, b"POST")
