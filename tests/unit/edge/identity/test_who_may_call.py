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


@pytest.mark.rule("T11")
@pytest.mark.parametrize("value", ["Basic dXNlcjpwYXNz", "Bearer", "Bearer a b", SECRET])
async def test_a_malformed_credential_is_401_and_is_told_to_nobody(value: str) -> None:
    async with edge(needing("read"), settings=SETTINGS) as served:
        exchange = await served.answer(Post(headers={"authorization": value}))
    assert (exchange.status, challenge(exchange)) == (401, f'Bearer error="invalid_token", {DOCUMENT}')
    assert "id" not in exchange.json
    assert served.authorization.admits == []


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


@pytest.mark.rule("D15")
async def test_discover_needs_a_well_formed_token_and_not_a_verified_one() -> None:
    """It tells nothing that depends on the caller, and a refusal makes clients settle on an older protocol."""
    async with edge(tool(), settings=SETTINGS) as served:
        served.authorization.error = Unanswered("authorization.admit")
        served.authorization.granted = TokensGranted(granted=0, rest=60)
        for _ in range(10):
            assert (await served.answer(Post(request("server/discover"), BEARER))).status == 200
        assert (await served.answer(Post(request("server/discover")))).status == 401
    assert served.authorization.admits == []


@pytest.mark.rule("D10")
async def test_what_lacks_a_scope_is_listed_and_what_is_unknown_is_not_told_apart() -> None:
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


@pytest.mark.rule("D4")
@pytest.mark.parametrize("message", [request("tools/list"), call(), CANCELLED])
async def test_a_caller_over_its_limit_gets_429_with_the_delay(message: dict[str, Any]) -> None:
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


@pytest.mark.rule("M40")
async def test_a_tools_own_limit_counts_besides() -> None:
    quiet = SETTINGS.model_copy(update={"rate_requests": "none", "rate_tools": "none"})
    async with edge(needing(rate=Rate(calls=1, seconds=60)), settings=quiet) as served:
        served.authorization.principal = Principal(subject="ann")
        served.authorization.granted = TokensGranted(granted=0, rest=1)
        assert (await served.answer(Post(call(), BEARER))).status == 429
        assert (await served.answer(Post(request("tools/list"), BEARER))).status == 200


@pytest.mark.rule("T11")
async def test_whether_a_target_exists_comes_before_the_limit() -> None:
    async with edge(tool(), settings=SETTINGS) as served:
        served.authorization.granted = TokensGranted(granted=0, rest=1)
        assert (await served.answer(Post(call("unknown"), BEARER))).status == 400


@pytest.mark.rule("invariant 9")
async def test_no_line_and_no_answer_holds_a_token() -> None:
    async with edge(needing("write"), settings=SETTINGS) as served:
        shown = ""
        for error in (None, Unanswered("authorization.admit"), RuntimeError("a mistake of ours")):
            served.authorization.error = error
            for message in (call(), request("tools/list"), CANCELLED):
                exchange = await served.answer(Post(message, BEARER))
                shown += f"{exchange.sent}"
        shown += f"{served.log.entries}{served.figures()}"
    assert SECRET not in shown
