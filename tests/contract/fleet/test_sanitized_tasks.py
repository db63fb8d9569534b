"""Results of tasks that a sanitizer clears for each reader, whenever they are read (K12, K13)."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from mcp_types import TextContent

from mcpfleet.app import App, Outcome
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.listener import Listener, listening
from tests.contract.fleet.sanitized_app import Account, Office
from tests.kit.tasks import CAPABLE, TaskClient, text_of
from tests.kit.waiting import pause, until

FULL, LESS = "of-ann", "of-ann-with-less"
TOKENS = {
    "tokens": [
        {"token": FULL, "subject": "ann", "scopes": ["balances"], "audience": "mcp"},
        {"token": LESS, "subject": "ann", "audience": "mcp"},
    ]
}
SHORT, LONG = (
    {"owner": "ann", "opened": "2026-01-02", "balance": None},
    {
        "owner": "ann",
        "opened": "2026-01-02",
        "balance": 100,
    },
)


@pytest.fixture
def office() -> Office:
    return Office()


def fleet(app: App, **options: Any) -> LocalFleet:
    own = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps(TOKENS), **options.pop("environment", {})}
    return LocalFleet(app, environment=own, **options)


def of(http: Any, token: str) -> TaskClient:
    return TaskClient(http, headers={"Authorization": f"Bearer {token}"})


def found(task: dict[str, Any]) -> Any:
    return task["result"]["structuredContent"]


def completed(stream: Listener) -> list[dict[str, Any]]:
    return [each["params"] for each in stream.messages if each.get("params", {}).get("status") == "completed"]


@pytest.mark.rule("K13")
async def test_each_reader_sees_their_sanitized_result_and_the_stored_one_stays(office: Office) -> None:
    async with fleet(office.app, edges=2, workers=2) as running, running.http(0) as one, running.http(1) as two:
        full, less = of(one, FULL), of(two, LESS)
        task = await full.start("accounts")
        done = await less.until(task)
        assert found(done) == [SHORT]
        assert json.loads(text_of(done)) == [SHORT], "neither is it in the text"
        rich = await full.get(task)
        assert found(rich) == [LONG], "what one reader may not see is kept for the next"
        assert found(await less.get(task)) == [SHORT]
    assert rich["result"]["resultType"] == "complete", "M18"
    assert done["lastUpdatedAt"] == rich["lastUpdatedAt"], "reading changes nothing"
    whole = [Account("ann", dt.date(2026, 1, 2), 100)]
    assert {scopes for _, scopes in office.seen} == {(), ("balances",)}
    assert [value for value, _ in office.seen] == [whole] * len(office.seen), "it is given what the handler returned"


@pytest.mark.rule("K13")
async def test_a_stream_is_told_what_its_own_caller_may_see(office: Office) -> None:
    async with fleet(office.app, edges=2) as running, running.http(0) as one, running.http(1) as two:
        task = await of(one, FULL).start("later")
        streams = [
            listening(http, "/mcp", token=token, capabilities=CAPABLE, taskIds=[task])
            for http, token in ((one, FULL), (two, LESS))
        ]
        async with streams[0] as [full], streams[1] as [less]:
            office.release.set()
            await until(lambda: completed(full) and completed(less))
        polled = await of(two, LESS).get(task)
    assert [found(completed(stream)[0]) for stream in (full, less)] == [[LONG], [SHORT]]
    told = {name: value for name, value in completed(less)[0].items() if name != "_meta"}
    assert told == {name: value for name, value in polled.items() if name not in ("_meta", "resultType")}, "M73"


@pytest.mark.rule("K13")
async def test_a_call_of_the_same_tool_is_cleared_inline(office: Office) -> None:
    office.release.set()
    async with fleet(office.app) as running, running.http() as http:
        inline = TaskClient(http, capabilities={}, headers={"Authorization": f"Bearer {LESS}"})
        result = await inline.call("later")
    assert result["structuredContent"] == [SHORT]


@pytest.mark.rule("K12")
async def test_what_its_sanitizer_cannot_pass_is_an_internal_error_and_the_task_stays(office: Office) -> None:
    async with fleet(office.app, environment={"MCPFLEET_HEAL_INTERVAL": "0.3"}) as running, running.http() as http:
        client = of(http, FULL)
        task = await client.start("later")
        async with listening(http, "/mcp", token=FULL, capabilities=CAPABLE, taskIds=[task]) as [stream]:
            office.broken = True
            office.release.set()
            await until(lambda: bool(office.seen))
            answer = await client.post("tasks/get", {"taskId": task})
            assert (answer.status_code, answer.json()["error"]["code"]) == (200, -32603)
            assert "broken" not in answer.text, "what the sanitizer said is for the log"
            assert completed(stream) == []
            office.broken = False
            assert found(await client.get(task)) == [LONG]
            # The notification was suppressed, and not used up.
            await until(lambda: len(completed(stream)) == 1)
        assert "the sanitizer is broken" in running.logs()


@pytest.mark.rule("K12")
async def test_a_sanitizer_that_does_not_end_is_ended_and_told_likewise(office: Office) -> None:
    environment = {"MCPFLEET_TASK_SHOWN_WITHIN": "0.3"}
    async with fleet(office.app, environment=environment) as running, running.http() as http:
        client = of(http, FULL)
        task = await client.start("letter", kind="hangs")
        answers: list[int] = []
        while len(answers) < 2:
            answer = (await client.post("tasks/get", {"taskId": task})).json()
            answers += [answer["error"]["code"]] if "error" in answer else []
            await pause()
        assert answers == [-32603, -32603]


@pytest.mark.rule("K12")
async def test_without_a_worker_reading_is_retried_later_and_the_state_is_unchanged(office: Office) -> None:
    async with fleet(office.app, environment={"MCPFLEET_QUEUE_WAIT": "0.3"}) as running, running.http() as http:
        client = of(http, FULL)
        task = await client.start("accounts")
        await client.until(task)
        await running.workers[0].stop()
        away = await client.post("tasks/get", {"taskId": task})
        assert (away.status_code, away.json()["error"]["code"]) == (503, -32603)
        assert "retry-after" in away.headers
        await running.add_worker()
        assert found(await client.get(task)) == [LONG]


@pytest.mark.rule("K13")
async def test_after_a_rollout_the_tools_newer_version_clears_what_the_older_one_left(office: Office) -> None:
    newer = App("office", version="2")
    office.declare(newer, "Looks accounts up, and says when they were opened.")
    async with fleet(office.app) as running, running.http() as http:
        client = of(http, LESS)
        task = await client.start("accounts")
        await client.until(task)
        await running.add_worker(newer)
        await running.workers[0].stop()
        assert found(await client.until(task)) == [SHORT]


@pytest.mark.rule("K13")
async def test_a_result_that_is_too_large_for_a_frame_is_cleared_too(office: Office) -> None:
    async with fleet(office.app) as running, running.http() as http:
        client = of(http, LESS)
        task = await client.start("accounts", large=600_000)
        done = await client.until(task)
    assert found(done)[0]["balance"] is None
    assert len(found(done)[0]["owner"]) == 600_003


@pytest.mark.rule("K13")
async def test_the_sanitizer_gets_what_the_handler_returned_and_no_deliberate_error(
    office: Office,
) -> None:
    given = {
        "text": "dear\x1b reader",
        "nothing": None,
        "outcome": Outcome([TextContent(text="see")], {"pages": 2}, meta={"x": 1}),
    }
    texts = {"text": ["dear reader"], "nothing": [], "outcome": ["see"]}
    async with fleet(office.app) as running, running.http() as http:
        client = of(http, FULL)
        for kind, value in given.items():
            done = await client.until(await client.start("letter", kind=kind))
            assert office.seen[-1][0] == value
            assert [block["text"] for block in done["result"]["content"]] == texts[kind], "M40: and it is cleaned after"
        assert (found(done), done["result"]["_meta"]["x"]) == ({"pages": 2}, 1)
        seen = len(office.seen)
        failed = await client.until(await client.start("letter", kind="fails"))
    assert (text_of(failed), failed["result"]["isError"], len(office.seen)) == ("no paper", True, seen)
