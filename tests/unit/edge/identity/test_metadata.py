"""Where clients learn how to get a token."""

from __future__ import annotations

import json
from typing import Any

import pytest
from structlog.testing import LogCapture

from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.edge.identity.metadata import Challenges, Metadata, ResourceMetadata
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.allowed_hosts import AllowedHosts
from mcpfleet.wire.errors import Rejection
from tests.kit.logs import captured
from tests.unit.edge.asgi import Exchange, Post

ROOT = "/.well-known/oauth-protected-resource"
ISSUER = "https://auth.example.com"
NAMED = {"authorization": "jwt", "issuer": ISSUER}


def access(scopes: tuple[str, ...] = ("write", "read"), **settings: Any) -> ResourceMetadata:
    return ResourceMetadata(EdgeSettings(**{**NAMED, **settings}), "http://127.0.0.1:8000", lambda _: scopes)


def challenge(rejection: Rejection) -> str:
    return rejection.headers["WWW-Authenticate"]


async def answer(path: str, method: str = "GET", host: str = "127.0.0.1", **settings: Any) -> Exchange | None:
    """Ask for a document; nothing where it is none of them."""
    own = EdgeSettings(**{**NAMED, **settings})
    hosts = AllowedHosts("127.0.0.1:8000", ["mcp.example.com"], log=captured(LogCapture()))
    metadata = Metadata(access(**settings), own.endpoints, hosts)
    exchange = Exchange(
        Post(path=path, method=method, raw=b"", headers={"host": host, "origin": "https://any.example"})
    )
    client = exchange.client()
    if not metadata.takes(client):
        return None
    await metadata.answer(client)
    return exchange


async def test_a_head_gets_the_head_of_a_get() -> None:
    """RFC 9110, 9.3.2: the server leaves the body away."""
    [get, head] = [await answer(ROOT, method) for method in ("GET", "HEAD")]
    assert get is not None
    assert head is not None
    assert head.sent[0] == get.sent[0]


@pytest.mark.rule("M62")
@pytest.mark.parametrize("path", [ROOT, f"{ROOT}/mcp"])
async def test_the_document_is_at_the_root_and_under_the_endpoints_path(path: str) -> None:
    """T1: without a credential, and for scripts of any page."""
    exchange = await answer(path)
    assert exchange is not None
    assert (exchange.status, exchange.headers[b"access-control-allow-origin"]) == (200, b"*")
    assert exchange.json == {
        "resource": "http://127.0.0.1:8000/mcp",
        "authorization_servers": [ISSUER],
        "scopes_supported": ["read", "write"],
        "bearer_methods_supported": ["header"],
    }


async def test_the_public_name_counts_and_its_prefix_too() -> None:
    exchange = await answer(
        f"{ROOT}/api/mcp", host="mcp.example.com", public_url="https://mcp.example.com/api/", scopes="x"
    )
    assert exchange is not None
    document = json.loads(exchange.body)
    assert (document["resource"], document["scopes_supported"]) == ("https://mcp.example.com/api/mcp", ["x"])


async def test_each_endpoint_has_its_document_and_the_first_has_the_root() -> None:
    endpoints = {"a": Endpoint(path="/a"), "b": Endpoint(path="/b/mcp")}
    for path, resource in ((ROOT, "/a"), (f"{ROOT}/a", "/a"), (f"{ROOT}/b/mcp", "/b/mcp")):
        exchange = await answer(path, endpoints=endpoints)
        assert exchange is not None
        assert exchange.json["resource"] == f"http://127.0.0.1:8000{resource}"
    assert await answer(f"{ROOT}/c", endpoints=endpoints) is None


async def test_a_preflight_is_answered_and_another_method_is_not() -> None:
    exchange = await answer(ROOT, "OPTIONS")
    assert exchange is not None
    assert (exchange.status, exchange.headers[b"access-control-allow-methods"]) == (204, b"GET, HEAD, OPTIONS")
    with pytest.raises(Rejection) as raised:
        await answer(ROOT, "POST")
    assert (raised.value.status, raised.value.headers["Allow"]) == (405, "GET, HEAD, OPTIONS")


async def test_another_host_gets_no_document() -> None:
    with pytest.raises(Rejection) as raised:
        await answer(ROOT, host="evil.example")
    assert raised.value.status == 403


@pytest.mark.rule("X67")
async def test_where_no_server_gives_tokens_there_is_no_document() -> None:
    """M62: a document must name one; static tokens come from nowhere."""
    assert await answer(ROOT, authorization="static", issuer="") is None
    rejection = Challenges(access(authorization="static", issuer="")).missing("mcp")
    assert challenge(rejection) == 'Bearer scope="read write"'


@pytest.mark.rule("M63")
def test_a_challenge_leads_to_the_document_and_names_scopes() -> None:
    """T22: the address is absolute."""
    challenges = Challenges(access())
    document = f'resource_metadata="http://127.0.0.1:8000{ROOT}/mcp", scope="read write"'
    missing, refused, misplaced = (
        challenges.missing("mcp"), challenges.refused("mcp"), challenges.malformed("mcp"),
    )  # fmt: skip
    assert (missing.status, missing.code, challenge(missing)) == (401, -32603, f"Bearer {document}")
    assert (refused.status, challenge(refused)) == (401, f'Bearer error="invalid_token", {document}')
    assert (misplaced.status, challenge(misplaced)) == (400, f'Bearer error="invalid_request", {document}')


@pytest.mark.rule("M63")
def test_a_missing_scope_is_403_with_all_scopes_of_the_operation() -> None:
    rejection = Challenges(access()).insufficient_scope("mcp", ("write", "admin"))
    assert (rejection.status, rejection.code) == (403, -32603)
    assert challenge(rejection) == (
        f'Bearer error="insufficient_scope", resource_metadata="http://127.0.0.1:8000{ROOT}/mcp", scope="write admin"'
    )


@pytest.mark.rule("T22")
def test_offline_access_is_asked_for_only_where_a_tool_needs_it() -> None:
    assert "offline_access" not in challenge(Challenges(access()).missing("mcp"))


def test_a_scope_of_a_workers_making_breaks_no_header() -> None:
    """Invariant 13: a worker may declare anything."""
    scopes = ('a"b', "c\r\nSet-Cookie: x", "d e", "", "good")
    assert challenge(Challenges(access(scopes)).missing("mcp")).endswith('scope="good"')
    assert challenge(Challenges(access()).insufficient_scope("mcp", scopes)).endswith('scope="good"')


def test_a_challenge_names_a_bounded_number_of_scopes() -> None:
    many = tuple(f"scope-{number}" for number in range(1000))
    assert len(challenge(Challenges(access(many)).missing("mcp"))) < 4096
