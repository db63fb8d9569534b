"""The revisions of 2025 without a session: how they are told from the modern one, and how they are answered."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.bus.errors import Unanswered
from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.edge.protocol.exchange import Exchange as ServerExchange
from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.protocol import LEGACY, MODERN, SERVED_WITH_LEGACY
from tests.unit.edge.asgi import Exchange, Post, request
from tests.unit.edge.played_edge import SETTINGS, edge, tool
from tests.unit.edge.server.checks import MODERN_ALONE, identified, router


def legacy(method: str, params: dict[str, Any] | None = None, version: str | None = LEGACY[0], **fields: Any) -> Post:
    """A request as a client of 2025 sends it."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}} | fields
    headers = {"mcp-protocol-version": version, "mcp-method": None, "mcp-name": None}
    return Post(message, headers=headers)


def handshake(version: str = LEGACY[0], header: str | None = None) -> Post:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    return legacy("initialize", params, header)


BOTH = router()


def told(post: Post, *, served: bool = True) -> ServerExchange:
    return identified(post, checks=BOTH if served else MODERN_ALONE)


def refused(post: Post, *, served: bool = True) -> Rejection:
    with pytest.raises(Rejection) as raised:
        told(post, served=served)
    return raised.value


@pytest.mark.parametrize("version", LEGACY)
def test_l1_a_header_of_2025_makes_a_request_legacy(version: str) -> None:
    assert told(legacy("tools/list", version=version)).revision.name == version


def test_m1_a_modern_claim_in_the_body_is_modern_whatever_the_header_says() -> None:
    assert refused(Post(request("tools/list"), headers={"mcp-protocol-version": LEGACY[0]})).code == -32020


@pytest.mark.parametrize(
    ("requested", "header", "agreed"),
    [
        ("2025-06-18", None, "2025-06-18"),
        ("2025-11-25", "2025-06-18", "2025-11-25"),
        ("2024-11-05", "2025-06-18", "2025-06-18"),
        ("2024-11-05", None, "2025-11-25"),
        ("nonsense", None, "2025-11-25"),
    ],
)
def test_l3_m74_a_handshake_agrees_on_a_served_revision(requested: str, header: str | None, agreed: str) -> None:
    assert told(handshake(requested, header)).revision.name == agreed


@pytest.mark.parametrize("header", ["2024-11-05", "2099-01-01", MODERN, "nonsense", ""])
def test_l20_a_handshake_is_not_judged_by_its_header(header: str) -> None:
    assert told(handshake(header=header)).revision.name == LEGACY[0]


def test_m30_an_unknown_revision_is_told_all_that_are_served() -> None:
    rejection = refused(legacy("tools/list", version="2024-11-05"))
    assert (rejection.code, rejection.data["supported"]) == (-32022, list(SERVED_WITH_LEGACY))


def test_d11_an_endpoint_may_serve_the_modern_revision_alone() -> None:
    for post in (handshake(), legacy("tools/list")):
        rejection = refused(post, served=False)
        assert (rejection.code, rejection.data["supported"]) == (-32022, [MODERN])


def test_l6_what_a_modern_client_mirrors_in_headers_means_nothing() -> None:
    headers: dict[str, str | None] = {
        "mcp-protocol-version": LEGACY[0],
        "mcp-method": "prompts/get",
        "mcp-name": "another",
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search"}}
    assert told(Post(message, headers=headers)).params == {"name": "search"}


def test_l4_without_a_version_and_a_session_it_is_no_request_of_2025() -> None:
    assert refused(legacy("tools/list", version=None)).status == 400


WITHOUT_SESSIONS = SETTINGS.model_copy(update={"endpoints": {"mcp": Endpoint(path="/mcp", sessions=False)}})


async def answered(post: Post) -> Exchange:
    async with edge(tool(), settings=WITHOUT_SESSIONS) as served:
        return await served.answer(post)


async def test_m74_initialize_is_answered_without_a_session() -> None:
    exchange = await answered(handshake("2025-06-18"))
    assert exchange.json["result"] == {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "library", "version": "1"},
    }
    assert b"mcp-session-id" not in exchange.headers


async def test_m77_ping_is_answered_by_nothing_but_an_empty_object() -> None:
    assert (await answered(legacy("ping"))).json == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_m78_a_list_has_nothing_modern() -> None:
    result = (await answered(legacy("tools/list"))).json["result"]
    assert result.keys() == {"tools"}


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
async def test_l2_an_operations_error_is_http_200(method: str, params: dict[str, Any], code: int) -> None:
    exchange = await answered(legacy(method, params))
    assert (exchange.status, exchange.json["error"]["code"]) == (200, code)


async def test_l2_what_concerns_the_servers_capacity_keeps_its_status() -> None:
    async with edge(tool()) as served:
        served.authorization.error = Unanswered("authorization.admit")
        exchange = await served.answer(legacy("tools/list"))
    assert (exchange.status, exchange.json["error"]["code"]) == (504, -32603)


async def test_m75_notifications_of_2025_are_accepted_whatever_they_are() -> None:
    async with edge(tool()) as served:
        for method in ("notifications/initialized", "notifications/cancelled", "notifications/nonsense"):
            message = {"jsonrpc": "2.0", "method": method}
            exchange = await served.answer(Post(message, headers={"mcp-protocol-version": LEGACY[0]}))
            assert (exchange.status, exchange.body) == (202, b"")


async def test_m76_without_sessions_get_and_delete_are_not_allowed() -> None:
    async with edge(tool()) as served:
        for method in ("GET", "DELETE"):
            exchange = await served.answer(Post(method=method, headers={"accept": "text/event-stream"}))
            assert (exchange.status, exchange.headers[b"allow"]) == (405, b"POST")
