"""One line for each call that was let in: who, what, outcome, duration, trace; nothing of what it said."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.app import ObservedApp
from tests.kit.waiting import until
from tests.unit.edge.asgi import Post, request

SECRET = "what-the-caller-said"
TOKENS = [{"token": "of-ann", "subject": "ann", "client": 'a"b', "audience": "mcp"}]
STATIC = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps({"tokens": TOKENS})}


def audited(fleet: LocalFleet) -> list[dict[str, Any]]:
    """The audit lines that were written until now."""
    written = fleet.lines("audit")
    assert SECRET not in str(written)
    return written


async def call(http: httpx2.AsyncClient, method: str, token: str = "", **params: Any) -> int:
    headers: dict[str, str | None] = {"host": "localhost", **({"authorization": f"Bearer {token}"} if token else {})}
    post = Post(request(method, params), headers)
    sent = {key.decode(): value.decode() for key, value in post.pairs()}
    return (await http.post("/mcp", content=post.body, headers=sent)).status_code


async def test_each_call_leaves_one_line_that_says_how_it_ended(observed: ObservedApp) -> None:
    async with LocalFleet(observed.app, edges=1) as fleet, fleet.http(0) as http:
        await call(http, "tools/call", name="act", arguments={"token": SECRET})
        await call(http, "tools/call", name="refuse", arguments={"why": SECRET})
        await call(http, "tools/call", name=SECRET, arguments={})
        await call(http, "tools/call", name="add", arguments={"left": SECRET, "right": 1})
        await call(http, "tools/list")
        await until(lambda: len(audited(fleet)) == 4)
    found = [(line["method"], line["target"], line["outcome"]) for line in audited(fleet)]
    assert found == [
        ("tools/call", "act", "ok"),
        ("tools/call", "refuse", "tool_error"),
        ("tools/call", None, "-32602"),
        ("tools/call", "add", "tool_error"),
    ]
    for line in audited(fleet):
        assert line.keys() == {
            "time", "level", "service", "process", "event", "method", "target", "outcome", "seconds", "trace_id",
        }  # fmt: skip
        assert 0 < line["seconds"] < 10
        assert len(line["trace_id"]) == 32
        assert (line["service"], line["level"]) == ("edge", "info")
    assert len({line["trace_id"] for line in audited(fleet)}) == 4


async def test_a_line_names_its_caller_and_nobody_who_was_refused_leaves_one(observed: ObservedApp) -> None:
    async with LocalFleet(observed.app, edges=1, environment=STATIC) as fleet, fleet.http(0) as http:
        assert await call(http, "tools/call", SECRET, name="act", arguments={"token": "x"}) == 401
        assert await call(http, "tools/call", "of-ann", name="act", arguments={"token": SECRET}) == 200
        await until(lambda: audited(fleet))
    [line] = audited(fleet)
    assert (line["subject"], line["client"], line["outcome"]) == ("ann", 'a"b', "ok")


async def test_one_setting_turns_them_off(observed: ObservedApp) -> None:
    async with (
        LocalFleet(observed.app, edges=1, environment={"MCPFLEET_AUDIT": "false"}) as fleet,
        fleet.http(0) as http,
    ):
        assert await call(http, "tools/call", name="act", arguments={"token": "x"}) == 200
    assert audited(fleet) == []
