"""The settings that a configuration lays over the tools of a source, as clients meet them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.vault_app import post
from tests.contract.hosting.hosting_harness import hosted_fleet, source

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKENS = [
    {"token": "of-ann", "subject": "ann", "audience": "mcp", "scopes": ["fixture", "fixture:write"]},
    {"token": "of-bob", "subject": "bob", "audience": "mcp", "scopes": ["fixture"]},
    {"token": "of-eve", "subject": "eve", "audience": "mcp", "scopes": []},
]
TOOLS: dict[str, Any] = {
    "echo": {"name": "say", "description": "Say it.", "annotations": {"readOnlyHint": True}},
    "pid": {"idempotency_key": "key"},
    "sleep": {"timeout": 0.3},
    "steps": {"rate": {"calls": 1, "seconds": 60}},
    "touch": {"scopes": ["fixture:write"]},
    "cancelled": {"only_for": ["subject:ann"]},
    "write": {"hide": True},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet() -> AsyncIterator[LocalFleet]:
    environment = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps({"tokens": TOKENS})}
    served = source(isolation="call", scopes=["fixture"], leave_out=["fa*"], check=True, tools=TOOLS)
    async with hosted_fleet(served, edges=2, environment=environment) as running:
        yield running


async def call(
    fleet: LocalFleet, name: str, *, who: str = "ann", edge: int = 0, meta: dict[str, Any] | None = None, **given: Any
) -> httpx2.Response:
    """Call a tool as one of the callers, at an edge."""
    params = {"name": name, "arguments": given, **({} if meta is None else {"_meta": meta})}
    async with fleet.http(edge) as http:
        return await post(http, f"of-{who}", "tools/call", params, name)


def said(answer: httpx2.Response) -> str:
    text: str = answer.json()["result"]["content"][0]["text"]
    return text


async def tools(fleet: LocalFleet, who: str) -> dict[str, Any]:
    async with fleet.http() as http:
        listed = (await post(http, f"of-{who}", "tools/list", {})).json()["result"]["tools"]
    return {tool["name"]: tool for tool in listed}


@pytest.mark.rule("B1")
async def test_the_configuration_changes_and_hides_tools(fleet: LocalFleet) -> None:
    listed = await tools(fleet, "ann")
    assert listed["say"] == {
        "name": "say", "description": "Say it.", "inputSchema": {"type": "object"}, "x-unknown": {"kept": None},
        "annotations": {"readOnlyHint": True},
    }  # fmt: skip
    assert {"echo", "fail", "write"}.isdisjoint(listed)
    assert "cancelled" in listed
    assert "cancelled" not in await tools(fleet, "bob")


async def test_a_repeat_under_a_key_does_not_run_and_other_arguments_are_refused(fleet: LocalFleet) -> None:
    first = await call(fleet, "pid", key="one")
    again = await call(fleet, "pid", key="one", edge=1)
    other = await call(fleet, "pid", key="one", number=2)
    assert said(again) == said(first), "each call has a process of its own, so another run would say another"
    assert said(await call(fleet, "pid", key="two")) != said(first)
    assert "other arguments" in said(other)


@pytest.mark.rule("B4")
async def test_arguments_are_checked_before_the_source_has_them(fleet: LocalFleet) -> None:
    refused = (await call(fleet, "pid", key="three", number="many")).json()["result"]
    assert refused["isError"] is True
    assert "number" in refused["content"][0]["text"]
    assert "isError" not in (await call(fleet, "pid", key="three", number=3)).json()["result"], "the key stayed free"


async def test_a_call_ends_after_the_time_of_its_tool(fleet: LocalFleet) -> None:
    late = (await call(fleet, "sleep")).json()["result"]
    assert late["isError"] is True
    assert "0.3" in late["content"][0]["text"]


async def test_a_rate_is_counted_for_each_partition(fleet: LocalFleet) -> None:
    meta = {"progressToken": 1}
    assert (await call(fleet, "steps", meta=meta)).status_code == 200
    assert (await call(fleet, "steps", meta=meta)).status_code == 429


async def test_scopes_of_the_source_and_of_the_tool_are_needed(fleet: LocalFleet) -> None:
    assert (await call(fleet, "touch")).status_code == 200
    assert (await call(fleet, "touch", who="bob")).status_code == 403
    assert (await call(fleet, "pid", who="bob", key="four")).status_code == 200
    lacking = await call(fleet, "pid", who="eve", key="five")
    assert 'scope="fixture"' in lacking.headers["www-authenticate"]
    assert (await call(fleet, "cancelled", who="bob")).json()["error"]["code"] == -32602, "D10: it is not there"
