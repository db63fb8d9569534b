"""Credentials, scopes and limits on the ladder: what is refused where, and what stays with the edge."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.bus.errors import Unanswered
from mcpfleet.contracts.authorization import TokensGranted
from mcpfleet.contracts.manifest import Definition, Rate
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.settings import EdgeSettings
from tests.unit.edge.asgi import Exchange, Post, call, request
from tests.unit.edge.played_edge import edge, tool

pytestmark = pytest.mark.usefixtures("jumping")

SETTINGS = EdgeSettings(
    queue_wait=0.1, max_request=100_000, authorization="jwt", issuer="https://auth.example.com", rate_requests="5/60"
)
SECRET = "very-secret-token"
BEARER: dict[str, str | None] = {"authorization": f"Bearer {SECRET}"}
DOCUMENT = 'resource_metadata="http://127.0.0.1:8000/.well-known/oauth-protected-resource/mcp", scope="read"'
CANCELLED = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}


def needing(*scopes: str, rate: Rate | None = None) -> Definition:
    return tool().model_copy(update={"scopes": scopes, "rate": rate})


def challenge(exchange: Exchange) -> str:
    return exchange.headers[b"www-authenticate"].decode()


async def test_t11_a_missing_credential_is_401_without_an_id_before_the_body_is_read() -> None:
    async with edge(needing("read"), settings=SETTINGS) as served:
        exchange = Exchange(Post(raw=b"{"), parts=[b"{"])
        await served.application(exchange.scope, exchange.receive, exchange.send)
    assert (exchange.status, challenge(exchange)) == (401, f"Bearer {DOCUMENT}")
    assert "id" not in exchange.json
    assert served.authorization.admits == []


@pytest.mark.parametrize("value", ["Basic dXNlcjpwYXNz", "Bearer", "Bearer a b", SECRET])
async def test_t11_a_malformed_credential_is_401_and_is_told_to_nobody(value: str) -> None:
    async with edge(needing("read"), settings=SETTINGS) as served:
        exchange = await served.answer(Post(headers={"authorization": value}))
    assert (exchange.status, challenge(exchange)) == (401, f'Bearer error="invalid_token", {DOCUMENT}')
    assert "id" not in exchange.json
    assert served.authorization.admits == []


async def test_m61_a_token_in_the_url_is_400_whatever_the_header_has() -> None:
    async with edge(needing("read"), settings=SETTINGS) as served:
        exchange = Exchange(Post(headers=BEARER))
        exchange.scope["query_string"] = b"access_token=x"
        await served.application(exchange.scope, exchange.receive, exchange.send)
    assert (exchange.status, challenge(exchange)) == (400, f'Bearer error="invalid_request", {DOCUMENT}')


async def test_t11_what_a_message_lacks_comes_before_whether_its_token_is_good() -> None:
    async with edge(tool(), settings=SETTINGS) as served:
        served.authorization.principal = None
        exchange = await served.answer(Post(request("tools/burn"), BEARER))
    assert (exchange.status, exchange.json["error"]["code"]) == (404, -32601)


async def test_t11_a_token_that_authorization_refuses_is_401_with_the_id() -> None:
    async with edge(needing("read"), settings=SETTINGS) as served:
        served.authorization.principal = None
        exchange = await served.answer(Post(call(identifier="mine"), BEARER))
    assert (exchange.status, challenge(exchange)) == (401, f'Bearer error="invalid_token", {DOCUMENT}')
    assert (exchange.json["id"], exchange.json["error"]["code"]) == ("mine", -32603)


async def test_a_token_is_told_to_authorization_with_what_it_must_be_for() -> None:
    async with edge(tool(), settings=SETTINGS) as served:
        await served.answer(Post(request("tools/list"), BEARER))
    (asked,) = served.authorization.admits
    assert asked.credential is not None
    assert (asked.credential.get_secret_value(), asked.resource) == (SECRET, "http://127.0.0.1:8000/mcp")


async def test_where_nobody_needs_a_credential_none_is_looked_at() -> None:
    async with edge(tool()) as served:
        for value in (None, "Basic x", "nonsense"):
            exchange = await served.answer(Post(request("tools/list"), {"authorization": value}))
            assert exchange.status == 200
    assert {asked.credential for asked in served.authorization.admits} == {None}


async def test_d15_discover_needs_a_well_formed_token_and_not_a_verified_one() -> None:
    """It tells nothing that depends on the caller, and a refusal makes clients settle on an older protocol."""
    async with edge(tool(), settings=SETTINGS) as served:
        served.authorization.error = Unanswered("authorization.admit")
        served.authorization.granted = TokensGranted(granted=0, rest=60)
        for _ in range(10):
            assert (await served.answer(Post(request("server/discover"), BEARER))).status == 200
        assert (await served.answer(Post(request("server/discover")))).status == 401
    assert served.authorization.admits == []


async def test_m63_a_missing_scope_is_403_that_names_all_of_the_operation() -> None:
    async with edge(needing("read", "write"), settings=SETTINGS) as served:
        served.authorization.principal = Principal(subject="ann", scopes=("read",))
        exchange = await served.answer(Post(call(), BEARER))
    assert (exchange.status, exchange.json["id"]) == (403, 1)
    assert challenge(exchange) == (
        'Bearer error="insufficient_scope", '
        'resource_metadata="http://127.0.0.1:8000/.well-known/oauth-protected-resource/mcp", scope="read write"'
    )


async def test_d10_what_lacks_a_scope_is_listed_and_what_is_unknown_is_not_told_apart() -> None:
    """Invariant 8."""
    async with edge(needing("write"), settings=SETTINGS) as served:
        served.authorization.principal = Principal(subject="ann")
        listed = await served.answer(Post(request("tools/list"), BEARER))
        unknown = await served.answer(Post(call("other"), BEARER))
    assert [each["name"] for each in listed.json["result"]["tools"]] == ["search"]
    assert (unknown.status, unknown.json["error"]["code"]) == (400, -32602)


async def test_where_nobody_needs_a_credential_nobody_lacks_a_scope() -> None:
    async with edge(needing("write")) as served:
        exchange = await served.answer(Post(call()))
    assert exchange.status == 503, "it gets as far as a pool without workers"


@pytest.mark.parametrize("message", [request("tools/list"), call(), CANCELLED])
async def test_d4_a_caller_over_its_limit_gets_429_with_the_delay(message: dict[str, Any]) -> None:
    """T13: notifications are limited as requests are, and stay without a body."""
    async with edge(tool(), settings=SETTINGS) as served:
        served.authorization.granted = TokensGranted(granted=0, rest=12.2)
        exchange = await served.answer(Post(message, BEARER))
    assert (exchange.status, exchange.headers[b"retry-after"]) == (429, b"13")
    if "id" in message:
        error = exchange.json["error"]
        assert (error["code"], error["data"]) == (-31999, {"retryAfter": 13})
    else:
        assert exchange.body == b""


async def test_m40_a_tools_own_limit_counts_besides() -> None:
    quiet = SETTINGS.model_copy(update={"rate_requests": "none", "rate_tools": "none"})
    async with edge(needing(rate=Rate(calls=1, seconds=60)), settings=quiet) as served:
        served.authorization.principal = Principal(subject="ann")
        served.authorization.granted = TokensGranted(granted=0, rest=1)
        assert (await served.answer(Post(call(), BEARER))).status == 429
        assert (await served.answer(Post(request("tools/list"), BEARER))).status == 200


async def test_t11_whether_a_target_exists_comes_before_the_limit() -> None:
    async with edge(tool(), settings=SETTINGS) as served:
        served.authorization.granted = TokensGranted(granted=0, rest=1)
        assert (await served.answer(Post(call("unknown"), BEARER))).status == 400


async def test_t1_the_documents_are_the_only_thing_that_is_got() -> None:
    path = "/.well-known/oauth-protected-resource/mcp"
    async with edge(tool(), settings=SETTINGS) as served:
        document = await served.answer(Post(method="GET", path=path, raw=b""))
        other = await served.answer(Post(method="GET", raw=b""))
        posted = await served.answer(Post(path=path))
    assert document.json["authorization_servers"] == ["https://auth.example.com"]
    assert (other.status, posted.status) == (405, 405)
    async with edge(tool()) as served:
        assert (await served.answer(Post(method="GET", path=path, raw=b""))).status == 404


async def test_invariant_9_no_line_and_no_answer_holds_a_token() -> None:
    async with edge(needing("write"), settings=SETTINGS) as served:
        shown = ""
        for error in (None, Unanswered("authorization.admit"), RuntimeError("a mistake of ours")):
            served.authorization.error = error
            for message in (call(), request("tools/list"), CANCELLED):
                exchange = await served.answer(Post(message, BEARER))
                shown += f"{exchange.sent}"
        shown += f"{served.log.entries}{served.figures()}"
    assert SECRET not in shown
