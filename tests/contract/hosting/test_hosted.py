"""A source is listed, called and cancelled as it is, in either era, by clients of either era."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import pytest
import pytest_asyncio
import structlog
from mcp import Client
from mcp.shared.exceptions import MCPError

from mcpfleet.sources.overlay import SourceLists, overlay
from mcpfleet.sources.source import Command, Source, Value
from mcpfleet.testing.local import LocalFleet
from mcpfleet.worker.hosting.child import Reaping
from mcpfleet.worker.hosting.source_supervisor import SourceSupervisor
from tests.contract.fleet.listener import listening
from tests.contract.fleet.vault_app import post
from tests.contract.hosting.hosting_harness import hosted_fleet, source
from tests.contract.hosting.test_children import is_running
from tests.kit.waiting import pause
from tests.unit.edge.asgi import MODERN, request

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["2025", "2026"])
async def fleet(request: pytest.FixtureRequest) -> AsyncIterator[LocalFleet]:
    async with hosted_fleet(source(request.param)) as running:
        yield running


async def call(fleet: LocalFleet, name: str, arguments: dict[str, Any], **meta: Any) -> Any:
    """Call a tool, with further members of `_meta`, and return the whole response."""
    body = request("tools/call", {"name": name, "arguments": arguments})
    body["params"]["_meta"] |= meta
    headers = {
        "accept": "application/json, text/event-stream", "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call", "mcp-name": name,
    }  # fmt: skip
    async with fleet.http() as http:
        return (await http.post("/mcp", json=body, headers=headers)).json()


@pytest.mark.rule("B1")
async def test_declarations_are_listed_member_for_member(fleet: LocalFleet) -> None:
    async with fleet.http() as http:
        listed = (await post(http, None, "tools/list", {})).json()["result"]["tools"]
    [echo] = [tool for tool in listed if tool["name"] == "echo"]
    assert echo == {
        "name": "echo", "description": "echo", "inputSchema": {"type": "object"}, "x-unknown": {"kept": None},
    }  # fmt: skip
    assert len(listed) == 11


@pytest.mark.rule("B25")
async def test_what_cannot_be_served_is_left_out_and_named(fleet: LocalFleet) -> None:
    async with fleet.client() as client:
        assert [each.uri for each in (await client.list_resources()).resources] == ["fixture://one"]
    assert [(line["kind"], line["name"]) for line in fleet.lines("not served")] == [("resource", "no uri")]


@pytest.mark.rule("B2", "B4")
async def test_arguments_and_results_keep_every_member(fleet: LocalFleet) -> None:
    given = {"nested": {"none": None}, "big": 98765432109876543210987}
    answer = await call(fleet, "echo", given, **{"com.example/trace": [1], "io.mcpfleet/ours": 2})
    result = answer["result"]
    assert result["content"] == [{"type": "text", "text": "", "annotations": None}, {"type": "hologram", "depth": 3}]
    structured = result["structuredContent"]
    assert structured["arguments"] == given
    assert (structured["big"], structured["none"]) == (12345678901234567890123, None)
    assert structured["meta"]["com.example/trace"] == [1]
    assert not [key for key in structured["meta"] if key.startswith("io.mcpfleet/")]
    assert result["_meta"]["com.example/kept"] == [1]
    assert (result["unknown"], result["resultType"], result["isError"]) == ({"kept": True}, "complete", False)


async def test_a_source_is_told_the_trace_of_its_call(fleet: LocalFleet) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    answer = await call(fleet, "echo", {}, traceparent=f"00-{trace}-b7ad6b7169203331-01")
    told = answer["result"]["structuredContent"]["meta"]["traceparent"]
    assert told.split("-")[1] == trace


@pytest.mark.rule("B2")
async def test_a_read_gets_our_cache_hints_once(fleet: LocalFleet) -> None:
    async with fleet.http() as http:
        answer = await post(http, None, "resources/read", {"uri": "fixture://one"}, "fixture://one")
    result = answer.json()["result"]
    assert result["contents"] == [{"uri": "fixture://one", "text": "read", "x": None}]
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
    assert answer.text.count("ttlMs") == 1


async def test_prompts_templates_and_completions_are_passed_on(fleet: LocalFleet) -> None:
    async with fleet.client() as client:
        [said] = (await client.get_prompt("review", {"title": "Emma"})).messages
        assert getattr(said.content, "text", "") == '{"title": "Emma"}'
        read = await client.read_resource("fixture://books/emma")
        assert [each.uri for each in read.contents] == ["fixture://books/emma"]
        for ref in (
            {"type": "ref/prompt", "name": "review"},
            {"type": "ref/resource", "uri": "fixture://books/{book}"},
        ):
            argument = {"name": "title" if "name" in ref else "book", "value": "e"}
            async with fleet.http() as http:
                answer = await post(http, None, "completion/complete", {"ref": ref, "argument": argument})
            told, typed = answer.json()["result"]["completion"]["values"]
            assert (json.loads(told), typed) == (ref, "e")


@pytest.mark.rule("B3")
@pytest.mark.parametrize(
    ("error", "seen"),
    [
        ({"code": 7, "message": "own", "data": {"x": None}}, {"code": 7, "message": "own", "data": {"x": None}}),
        ({"code": -32602, "message": "bad"}, {"code": -32602, "message": "bad"}),
        (
            {"code": -32000, "message": "closed"},
            {"code": -32603, "message": "closed", "data": {"upstream": {"code": -32000, "message": "closed"}}},
        ),
        (
            {"code": -32022, "message": "version", "data": [1]},
            {
                "code": -32603, "message": "version",
                "data": {"upstream": {"code": -32022, "message": "version", "data": [1]}},
            },
        ),
    ],
)  # fmt: skip
async def test_errors_keep_their_codes_but_those_that_clients_never_get(
    fleet: LocalFleet, error: Any, seen: Any
) -> None:
    assert (await call(fleet, "fail", {"error": error}))["error"] == seen
    async with fleet.client(mode="legacy") as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("fail", {"error": error})
    assert refused.value.error.code == error["code"]


@pytest.mark.rule("B5", "B6")
async def test_progress_precedes_its_result(fleet: LocalFleet) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def take(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with fleet.client() as client:
        await client.call_tool("steps", {}, progress_callback=take)
    assert seen[-1] == (3, 3, "step 3")


@pytest.mark.rule("B5")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_cancel_reaches_the_source(fleet: LocalFleet, mode: str) -> None:
    async with fleet.client(mode=mode) as client:
        with anyio.move_on_after(1):
            await client.call_tool("sleep", {})
        with anyio.fail_after(5):
            while True:
                told = await client.call_tool("cancelled", {})
                if json.loads(getattr(told.content[0], "text", "[]")):
                    break
                await pause()


async def pid_of(client: Client) -> str:
    return getattr((await client.call_tool("pid", {})).content[0], "text", "")


@pytest.mark.rule("B7", "B8")
async def test_a_call_whose_source_dies_is_uncertain_and_runs_once(fleet: LocalFleet) -> None:
    async with fleet.client() as client:
        before = await pid_of(client)
        died = await client.call_tool("die", {})
        assert died.is_error
        assert "The outcome is uncertain" in getattr(died.content[0], "text", "")
        assert await pid_of(client) != before  # a new child, and it was not asked to die
    assert fleet.lines("source ended")[-1]["why"] == "ended with exit code 3; it last wrote: dying as asked"


@pytest.mark.rule("B15")
async def test_calls_that_share_nothing_have_a_child_each() -> None:
    async with hosted_fleet(source(isolation="call")) as fleet, fleet.client() as client:
        assert await pid_of(client) != await pid_of(client)
        died = await client.call_tool("die", {})
        assert "The outcome is uncertain" in getattr(died.content[0], "text", "")


@pytest.mark.rule("B17")
async def test_calls_that_come_together_have_no_more_children_than_may_be() -> None:
    answers: list[httpx2.Response] = []
    is_answered = anyio.Event()

    async def sleep(http: httpx2.AsyncClient) -> None:
        answers.append(await post(http, None, "tools/call", {"name": "sleep", "arguments": {}}, "sleep"))
        is_answered.set()

    async with (
        hosted_fleet(source(isolation="call", children=1)) as fleet,
        fleet.http() as http,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(sleep, http)
        tasks.start_soon(sleep, http)
        with anyio.fail_after(20):
            await is_answered.wait()
        tasks.cancel_scope.cancel()
    assert [each.status_code for each in answers] == [503]


async def test_an_answer_does_not_wait_for_the_end_of_its_child() -> None:
    async with hosted_fleet(source(isolation="call")) as fleet, fleet.client() as client:
        pid = int(getattr((await client.call_tool("linger", {})).content[0], "text", ""))
        assert is_running(pid)
    assert not is_running(pid)


@pytest.mark.rule("B18", "B21")
async def test_a_source_that_cannot_start_is_paused_and_named() -> None:
    told: list[tuple[bool, str]] = []
    is_told = anyio.Event()

    def tell(is_there: bool, why: str) -> None:
        told.append((is_there, why))
        is_told.set()

    reaping = Reaping()
    supervisor = SourceSupervisor(
        source("broken"), reaping, log=structlog.get_logger(),
        tell_health=tell, on_change=lambda: None, on_update=lambda _: None,
    )  # fmt: skip
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run)
        await is_told.wait()
        tasks.cancel_scope.cancel()
    await reaping.close()
    assert told == [(False, "ended with exit code 4; it last wrote: cannot open the database ***")]


@pytest.mark.rule("B18", "B7")
async def test_calls_to_a_source_that_ends_too_often_are_refused_and_not_run() -> None:
    async with hosted_fleet() as fleet, fleet.client() as client:
        for _ in range(5):
            await client.call_tool("die", {})
        async with fleet.http() as http:
            answer = await post(http, None, "tools/call", {"name": "pid", "arguments": {}}, "pid")
        assert answer.status_code == 503
        assert "nothing was run" in answer.json()["error"]["message"]
        assert (await client.list_tools()).tools


@pytest.mark.rule("B20")
async def test_lines_that_are_no_messages_are_told_and_dropped(fleet: LocalFleet) -> None:
    async with fleet.client() as client:
        for text, times in (("Listening on stdio", 1), ("[1]", 1), ('{"jsonrpc": "1.0"}', 1), ("x", 1_000_000)):
            assert not (await client.call_tool("write", {"text": text, "times": times})).is_error
    assert [line["line"][:18] for line in fleet.lines("source wrote no JSON-RPC")] == [
        "Listening on stdio", "[1]", '{"jsonrpc": "1.0"}', "x" * 18,
    ]  # fmt: skip


@pytest.mark.rule("B20")
async def test_a_line_over_the_limit_ends_the_connection() -> None:
    async with hosted_fleet(source(message_limit=64 * 1024)) as fleet, fleet.client() as client:
        lost = await client.call_tool("write", {"text": "x", "times": 200_000})
        assert "The outcome is uncertain" in getattr(lost.content[0], "text", "")
        assert await pid_of(client)
    [ended] = fleet.lines("source ended")
    assert "message_limit" in ended["why"]


@pytest.mark.rule("B23")
async def test_changes_settle_and_are_announced_once() -> None:
    async with hosted_fleet() as fleet, fleet.client() as client:
        before = len(fleet.lines("snapshot changed"))
        await client.call_tool("declare", {"name": "new", "times": 10})

        async def names() -> list[str]:
            return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]

        with anyio.fail_after(10):
            while "new9" not in await names():  # noqa: ASYNC110  # the edge hears of it some time
                await anyio.sleep(0.05)
        assert len(fleet.lines("snapshot changed")) == before + 1


async def test_prefixes_stand_before_names_and_not_before_uris() -> None:
    two = source(name="two", prefix="two_")
    async with hosted_fleet(source(), two) as fleet, fleet.client() as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"echo", "two_echo"} <= names
        assert await pid_of(client) != getattr((await client.call_tool("two_pid", {})).content[0], "text", "")
        assert [each.uri for each in (await client.list_resources()).resources] == ["fixture://one"]


@pytest.mark.rule("B22")
async def test_definitions_are_equal_whatever_the_secret_and_the_order_of_pages() -> None:
    tools = ({"name": "b", "inputSchema": {"type": "object"}}, {"name": "a", "inputSchema": {"type": "object"}})
    digests = set()
    for secret, listed in (("one", tools), ("two", tools[::-1])):
        env = {"TOKEN": Value(text=secret)}
        one = Source(name="x", way=Command(words=("server",), env=env), isolation="call")
        offers = overlay(one, SourceLists(tools=listed), hosted=one.digest, per_caller=True).offers
        digests.add(frozenset(each.definition.digest for each in offers))
    assert len(digests) == 1


@pytest.mark.rule("B5")
async def test_updates_of_watched_resources_reach_those_who_watch(fleet: LocalFleet) -> None:
    async with (
        fleet.http() as http,
        listening(http, "/mcp", resourceSubscriptions=["fixture://one", "fixture://other"]) as [listener],
    ):
        with anyio.fail_after(20):
            while "fixture://one" not in listener.uris():
                answer = await call(fleet, "touch", {})
                assert answer["result"]["content"][0]["text"] in ("[]", '["fixture://one"]')
                await anyio.sleep(0.1)
