"""Sources over HTTP, in either era: what crosses, what is sent, and what each failure means."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import pytest_asyncio
import structlog

from mcpfleet.sources.source import Source, Url, Value
from mcpfleet.testing.local import LocalFleet
from mcpfleet.wire.parameter_headers import encode
from mcpfleet.worker.hosting.child import Reaping
from mcpfleet.worker.hosting.source_supervisor import SourceSupervisor
from tests.contract.fleet.listener import listening
from tests.contract.fleet.vault_app import post
from tests.contract.hosting.hosting_harness import hosted_fleet
from tests.contract.hosting.http_source import HttpSource, Received, Reply, error, event, http_source, result
from tests.contract.hosting.test_hosted import call
from tests.kit.waiting import pause, until
from tests.unit.edge.asgi import MODERN
from tests.unit.edge.asgi import request as request_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "k3y-of-the-server"


def of_url(upstream: HttpSource, **members: Any) -> Source:
    """A source at a server's URL, with a secret among its headers."""
    headers = {"X-Key": Value(text=SECRET)}
    way = members.pop("way", None) or Url(url=upstream.url, headers=headers)
    return Source.model_validate({"name": "raw", "way": way, "isolation": "shared", **members})


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["2025", "2026"])
async def upstream(request: pytest.FixtureRequest) -> AsyncIterator[HttpSource]:
    async with http_source(request.param) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(upstream: HttpSource) -> AsyncIterator[LocalFleet]:
    async with hosted_fleet(of_url(upstream)) as running:
        yield running


async def call_in_region(fleet: LocalFleet, region: str) -> dict[str, Any]:
    """Call the tool `echo`, whose argument a header repeats."""
    headers = {
        "accept": "application/json, text/event-stream", "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call", "mcp-name": "echo", "mcp-param-region": encode(region),
    }  # fmt: skip
    body = request_of("tools/call", {"name": "echo", "arguments": {"region": region}})
    async with fleet.http() as http:
        return dict((await http.post("/mcp", json=body, headers=headers)).json())


async def why_not(source: Source) -> str:
    """Start a source that cannot be served, and return why not."""
    told: list[str] = []
    reaping = Reaping()
    supervisor = SourceSupervisor(
        source, reaping, log=structlog.get_logger(),
        tell_health=lambda _, why: told.append(why), on_change=lambda: None, on_update=lambda _: None,
    )  # fmt: skip
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run)
        await until(lambda: bool(told))
        tasks.cancel_scope.cancel()
    return told[0]


def text_of(answer: dict[str, Any]) -> str:
    return str(answer["result"]["content"][0]["text"])


@pytest.mark.rule("B1", "B2", "B4")
async def test_declarations_arguments_and_results_keep_every_member(fleet: LocalFleet, upstream: HttpSource) -> None:
    async with fleet.http() as http:
        listed = (await post(http, None, "tools/list", {})).json()["result"]["tools"]
    assert {each["name"]: each for each in listed} == {each["name"]: each for each in upstream.tools}
    given = {"nested": {"none": None}, "big": 98765432109876543210987}
    told = (await call(fleet, "echo", given, **{"com.example/kept": [1]}))["result"]
    assert told["structuredContent"]["arguments"] == given
    assert told["structuredContent"]["big"] == 12345678901234567890123
    assert told["structuredContent"]["meta"]["com.example/kept"] == [1]
    assert (told["content"], told["unknown"]) == ([{"type": "hologram"}], {"kept": None})


@pytest.mark.rule("B3")
async def test_errors_keep_code_message_and_data(fleet: LocalFleet) -> None:
    given = {"code": 7, "message": "own", "data": {"x": None}}
    assert (await call(fleet, "fail", {"error": given}))["error"] == given


@pytest.mark.rule("B5")
async def test_progress_precedes_its_result(fleet: LocalFleet) -> None:
    seen: list[float] = []

    async def take(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with fleet.client() as client:
        await client.call_tool("steps", {}, progress_callback=take)
    assert seen[-1] == 2


@pytest.mark.rule("B5")
async def test_a_cancel_reaches_the_server(fleet: LocalFleet, upstream: HttpSource) -> None:
    async with fleet.client() as client:
        with anyio.move_on_after(1):
            await client.call_tool("sleep", {})
        await until(lambda: bool(upstream.cancels), within=5)


@pytest.mark.rule("B5")
async def test_updates_of_watched_resources_reach_those_who_watch(fleet: LocalFleet) -> None:
    async with (
        fleet.http() as http,
        listening(http, "/mcp", resourceSubscriptions=["raw://one"]) as [listener],
    ):
        with anyio.fail_after(20):
            while "raw://one" not in listener.uris():
                await call(fleet, "touch", {})
                await pause()


async def test_requests_carry_the_headers_of_their_era(fleet: LocalFleet, upstream: HttpSource) -> None:
    assert "result" in await call_in_region(fleet, "Österreich")
    sent = upstream.asked("tools/call")[-1].headers
    assert sent["x-key"] == SECRET
    assert sent["traceparent"].startswith("00-")
    assert sent["mcp-protocol-version"] == {"2025": "2025-06-18", "2026": "2026-07-28"}[upstream.era]
    if upstream.era == "2025":
        assert sent["mcp-session-id"] == upstream.session
        assert "mcp-method" not in sent
    else:
        assert (sent["mcp-method"], sent["mcp-name"]) == ("tools/call", "echo")
        assert sent["mcp-param-region"] == "=?base64?w5ZzdGVycmVpY2g=?="


async def test_changed_lists_are_read_again(fleet: LocalFleet, upstream: HttpSource) -> None:
    upstream.tools.append({"name": "new", "inputSchema": {"type": "object"}})
    await upstream.tell("notifications/tools/list_changed", {})
    async with fleet.client() as client:
        with anyio.fail_after(10):
            while "new" not in [each.name for each in (await client.list_tools(cache_mode="bypass")).tools]:
                await pause()


@pytest.mark.rule("B7", "B8")
async def test_a_call_whose_answer_is_lost_is_uncertain_and_ends_no_other(
    fleet: LocalFleet, upstream: HttpSource
) -> None:
    def cut(received: Received) -> Reply | None:
        return Reply(cut=True) if received.asks == "tools/call" and "cut" in json.dumps(received.body) else None

    before = len(upstream.asked("tools/call"))
    answers: list[dict[str, Any]] = []

    async def slow() -> None:
        answers.append(await call(fleet, "sleep", {"seconds": 1}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(slow)
        await until(lambda: len(upstream.asked("tools/call")) > before)
        upstream.rule = cut
        assert "The outcome is uncertain" in text_of(await call(fleet, "echo", {"cut": True}))
    upstream.rule = lambda _: None
    assert answers[0]["result"]["content"] == []
    assert len(upstream.asked("tools/call")) == before + 2


@pytest.mark.rule("B7")
@pytest.mark.parametrize(
    ("status", "seen"), [(500, "uncertain"), (502, "uncertain"), (403, "HTTP 403"), (429, "HTTP 429")]
)
async def test_a_status_is_told_and_the_call_is_not_sent_again(
    fleet: LocalFleet, upstream: HttpSource, status: int, seen: str
) -> None:
    before = len(upstream.asked("tools/call"))
    upstream.rule = lambda received: Reply(status=status) if received.asks == "tools/call" else None
    answer = await call(fleet, "echo", {})
    upstream.rule = lambda _: None
    assert seen in json.dumps(answer)
    assert len(upstream.asked("tools/call")) == before + 1
    assert "result" in await call(fleet, "echo", {})


@pytest.mark.rule("B20")
@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_answer_over_the_limit_is_lost_alone(is_stream: bool) -> None:
    def large(received: Received) -> Reply | None:
        if received.asks != "tools/call" or "large" not in json.dumps(received.body):
            return None
        message = result(received, {"content": [{"type": "text", "text": "x" * 100_000}]})
        return Reply(events=[event(message)]) if is_stream else Reply(message)

    async with http_source() as upstream, hosted_fleet(of_url(upstream, message_limit=64 * 1024)) as fleet:
        upstream.rule = large
        assert "The outcome is uncertain" in text_of(await call(fleet, "echo", {"large": True}))
        assert "result" in await call(fleet, "echo", {})
        assert not fleet.lines("source ended")


@pytest.mark.rule("B8")
async def test_a_session_that_the_server_forgot_begins_anew_and_the_call_runs_once() -> None:
    async with http_source("2025") as upstream, hosted_fleet(of_url(upstream)) as fleet:
        upstream.session = "another"
        assert "result" in await call(fleet, "echo", {})
        assert (len(upstream.asked("tools/call")), upstream.executions, upstream.sessions) == (2, 1, 2)


@pytest.mark.rule("B8")
async def test_calls_of_a_session_that_ended_go_on_beside_the_next_one() -> None:
    async with http_source("2025") as upstream, hosted_fleet(of_url(upstream)) as fleet:
        answers: list[dict[str, Any]] = []

        async def slow() -> None:
            answers.append(await call(fleet, "sleep", {"seconds": 2}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slow)
            await until(lambda: bool(upstream.executions))
            upstream.session = "another"
            assert "result" in await call(fleet, "echo", {})
            assert not answers
        assert answers[0]["result"]["content"] == []


@pytest.mark.rule("B8")
async def test_a_call_is_sent_again_only_once() -> None:
    async with http_source("2025") as upstream, hosted_fleet(of_url(upstream)) as fleet:
        upstream.rule = lambda received: Reply(status=404) if received.asks == "tools/call" else None
        assert "error" in await call(fleet, "echo", {})
        assert len(upstream.asked("tools/call")) == 2


@pytest.mark.rule("B8")
async def test_a_call_with_headers_of_an_old_list_is_sent_again_with_new_ones() -> None:
    async with http_source() as upstream, hosted_fleet(of_url(upstream)) as fleet:
        schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Area"}}}

        def expects(received: Received) -> Reply | None:
            if received.asks != "tools/call" or "mcp-param-area" in received.headers:
                return None
            return Reply(error(received, -32020, "Header mismatch"), 400)

        upstream.tools[0] = {**upstream.tools[0], "inputSchema": schema}
        upstream.rule = expects
        assert "result" in await call_in_region(fleet, "here")
        assert (len(upstream.asked("tools/call")), upstream.executions) == (2, 1)


@pytest.mark.rule("B7", "B18")
async def test_calls_to_a_server_that_is_away_were_not_run_and_it_is_served_again() -> None:
    async with http_source() as upstream, hosted_fleet(of_url(upstream)) as fleet, fleet.http() as http:
        await upstream.stop()
        answer = await post(http, None, "tools/call", {"name": "echo", "arguments": {}}, "echo")
        assert answer.status_code == 503
        assert "nothing was run" in answer.json()["error"]["message"]
        assert (await post(http, None, "tools/list", {})).json()["result"]["tools"]
        await until(lambda: bool(fleet.lines("source ended")))
        assert "it refuses connections" in fleet.lines("source ended")[0]["why"]
        await upstream.start()
        with anyio.fail_after(20):
            while "result" not in await call(fleet, "echo", {}):
                await pause()


@pytest.mark.rule("B8")
async def test_a_stream_of_2025_that_breaks_off_is_taken_up_again() -> None:
    async with http_source("2025") as upstream, hosted_fleet(of_url(upstream)) as fleet:
        asked: list[Received] = []

        def breaks(received: Received) -> Reply | None:
            if received.asks == "tools/call":
                asked.append(received)
                return Reply(events=["id: 7\nretry: 10\ndata:\n\n"], cut=True)
            if received.method == "GET" and received.headers.get("last-event-id") == "7":
                return Reply(events=[event(result(asked[0], {"content": [], "resumed": True}))])
            return None

        upstream.rule = breaks
        assert (await call(fleet, "echo", {}))["result"]["resumed"] is True
        assert len(asked) == 1


@pytest.mark.rule("B26")
async def test_redirects_are_followed_within_the_origin_by_handshakes_alone() -> None:
    async with http_source() as upstream, http_source() as other:
        to = {"/old": "/mcp", "/away": other.url}

        def redirects(received: Received) -> Reply | None:
            return Reply(status=307, headers={"Location": to[received.path]}) if received.path in to else None

        upstream.rule = redirects
        headers = {"X-Key": Value(text=SECRET)}
        way = Url(url=upstream.url.replace("/mcp", "/old"), headers=headers)
        async with hosted_fleet(of_url(upstream, way=way)) as fleet:
            assert "result" in await call(fleet, "echo", {})
            assert {each.path for each in upstream.asked("tools/call")} == {"/mcp"}
        away = Url(url=upstream.url.replace("/mcp", "/away"), headers=headers)
        assert "no credential follows there" in await why_not(of_url(upstream, way=away))
        assert not other.received


@pytest.mark.rule("B15")
@pytest.mark.parametrize(("era", "handshakes"), [("2025", 4), ("2026", 1)])
async def test_callers_share_only_a_server_without_sessions_by_default(era: str, handshakes: int) -> None:
    async with http_source(era) as upstream, hosted_fleet(of_url(upstream, isolation=None)) as fleet:
        for _ in range(3):  # nobody has a name, so each call is a caller's own
            assert "result" in await call(fleet, "echo", {})
        begun = upstream.asked("initialize" if era == "2025" else "server/discover")
        assert len(begun) == handshakes
        assert len({each.headers.get("mcp-session-id") for each in upstream.asked("tools/call")}) == handshakes - (
            era == "2025"
        )


async def test_the_era_of_a_server_is_kept_and_asked_for_anew_when_it_is_refused() -> None:
    async with http_source("2025") as upstream, hosted_fleet(of_url(upstream)) as fleet:
        asked = len(upstream.asked("server/discover"))
        upstream.session = "another"
        assert "result" in await call(fleet, "echo", {})
        assert len(upstream.asked("server/discover")) == asked
        upstream.era, upstream.session = "2026", None
        upstream.rule = lambda received: (
            Reply(status=404) if "mcp-session-id" in received.headers or received.asks == "initialize" else None
        )
        with anyio.fail_after(20):
            while "result" not in await call(fleet, "echo", {}):
                await pause()
        assert len(upstream.asked("server/discover")) > asked


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (401, "answered HTTP 401 Unauthorized: it wants a credential"),
        (403, "answered HTTP 403 Forbidden: the credential of `auth` or `headers` does not allow it"),
        (404, "answered HTTP 404 Not Found: no MCP server over Streamable HTTP is at this path"),
        (503, "answered HTTP 503 Service Unavailable"),
    ],
)
async def test_a_server_that_turns_the_handshake_away_is_named_with_its_status(status: int, told: str) -> None:
    async with http_source() as upstream:
        upstream.rule = lambda _: Reply(status=status)
        way = Url(url=f"{upstream.url}?key={SECRET}")
        why = await why_not(of_url(upstream, way=way))
        assert f"{upstream.url}?… {told}" in why
        assert SECRET not in why


async def test_a_server_that_cannot_be_reached_is_named_with_the_cause() -> None:
    async with http_source() as upstream:
        way = Url(url=upstream.url.replace("http://", "https://user:word@"))
        assert "cannot be reached: TLS failed" in (why := await why_not(of_url(upstream, way=way)))
        assert "word" not in why
    way = Url(url="http://nobody.invalid/mcp")
    assert await why_not(of_url(upstream, way=way)) == (
        "http://nobody.invalid/mcp cannot be reached: nobody knows its host name"
    )


@pytest.mark.rule("B5")
async def test_a_stream_for_other_resources_is_opened_before_the_former_ends() -> None:
    async with http_source() as upstream, hosted_fleet(of_url(upstream)) as fleet, fleet.http() as http:
        await until(lambda: upstream.order == ["opened"])
        async with listening(http, "/mcp", resourceSubscriptions=["raw://one"]):
            await until(lambda: len(upstream.order) > 2)
            assert upstream.order == ["opened", "opened", "closed"]
            assert upstream.watched == ["raw://one"]


@pytest.mark.rule("B21")
async def test_no_line_of_the_log_has_a_secret(fleet: LocalFleet, upstream: HttpSource) -> None:
    upstream.rule = lambda received: Reply(error(received, 1, SECRET)) if received.asks == "tools/list" else None
    await upstream.tell("notifications/tools/list_changed", {})
    await until(lambda: bool(fleet.lines("source not listed, former list stays")))
    upstream.rule = lambda _: None
    assert SECRET not in fleet.logs()
