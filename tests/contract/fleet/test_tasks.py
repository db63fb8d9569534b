"""Durable tasks over HTTP: created, read, answered and cancelled by their owners, on any edge."""

from __future__ import annotations

import json
import threading
from typing import Any

import anyio
import pytest

from mcpfleet.app import App
from mcpfleet.bus.errors import Unanswered
from mcpfleet.contracts.tasks import TasksClient
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.tasks_app import Works
from tests.kit.tasks import EXTENSION, TaskClient, text_of
from tests.kit.waiting import pause, until

TOKENS = [{"token": f"of-{name}", "subject": name, "audience": "mcp"} for name in ("ann", "bob")]
TASKS: dict[str, Any] = {"extensions": {EXTENSION: {}}}


@pytest.fixture
def works() -> Works:
    return Works()


@pytest.mark.rule("M66", "K5")
async def test_a_call_becomes_a_bare_task_that_can_be_read_at_once_at_another_edge(works: Works) -> None:
    async with LocalFleet(works.app, edges=2) as fleet, fleet.http(0) as one, fleet.http(1) as two:
        created = await TaskClient(one).call("double", {"number": 21})
        found = await TaskClient(two).get(created["taskId"])
        assert found["taskId"] == created["taskId"]
        done = await TaskClient(two).until(created["taskId"])
    assert created["resultType"] == "task"
    assert created["ttlMs"] is None
    assert created["pollIntervalMs"] > 0
    assert created.keys().isdisjoint({"result", "error", "inputRequests", "requestState", "task"})
    assert len(created["taskId"]) >= 22, "M72"
    assert done["resultType"] == "complete"
    assert done["status"] == "completed"
    assert done["result"]["structuredContent"] == {"result": 42} or done["result"]["structuredContent"] == 42
    assert 60_000 <= done["ttlMs"] < 120_000, "D8: the retention counts from the end"


@pytest.mark.rule("K24")
async def test_a_call_that_became_a_task_is_never_told_as_not_run(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks service goes away after the handler has made a task of its call: nobody can read the handle back."""

    async def unanswered(*_: Any) -> None:
        raise Unanswered("tasks.get: no answer")

    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        monkeypatch.setattr(TasksClient, "get", unanswered)
        answer = await TaskClient(http).post("tools/call", {"name": "must", "arguments": {}})
    assert answer.status_code == 200
    result = answer.json()["result"]
    assert result["isError"] is True
    assert "may have been made" in result["content"][0]["text"]


@pytest.mark.rule("K1", "D2")
async def test_the_extension_is_advertised_where_the_endpoint_has_it(works: Works) -> None:
    endpoints = '{"mcp": {"path": "/mcp"}, "plain": {"path": "/plain", "tasks": false}}'
    async with LocalFleet(works.app, environment={"MCPFLEET_ENDPOINTS": endpoints}) as fleet, fleet.http() as http:
        client, plain = TaskClient(http), TaskClient(http, "/plain")
        await until(lambda: {line["endpoint"] for line in fleet.lines("snapshot taken")} == {"mcp", "plain"})
        assert (await client.ask("server/discover", {}))["capabilities"]["extensions"] == {EXTENSION: {}}
        assert "extensions" not in (await plain.ask("server/discover", {}))["capabilities"]
        assert (await plain.refusal("tasks/get", {"taskId": "x" * 32}))["code"] == -32601
        names = {tool["name"] for tool in (await plain.ask("tools/list", {}))["tools"]}
        assert names == {"later", "must", "pay", "book"}, "what is nothing but a task is not there"
        refused = await client.refusal("tasks/get", {"taskId": "x" * 32}, capabilities={})
    assert refused["code"] == -32021
    assert refused["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


@pytest.mark.rule("K3")
async def test_a_task_only_tool_refuses_who_takes_no_tasks(works: Works) -> None:
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        params = {"name": "double", "arguments": {"number": 1}}
        refused = await TaskClient(http).refusal("tools/call", params, capabilities={})
    assert refused["code"] == -32021
    assert refused["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    assert works.runs == []


@pytest.mark.rule("K4")
async def test_arguments_are_checked_before_anything_is_made(works: Works) -> None:
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        result = await TaskClient(http).call("double", {"number": "many"})
    assert result["isError"] is True
    assert "number: must be" in result["content"][0]["text"]
    assert works.runs == []


@pytest.mark.rule("M68")
async def test_a_tools_error_completes_a_protocol_error_fails(works: Works) -> None:
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        failed = await client.until(await client.start("fails"))
        broken = await client.until(await client.start("breaks"))
        lied = await client.until(await client.start("lies"))
    assert (failed["status"], failed["result"]["isError"], text_of(failed)) == ("completed", True, "no paper")
    assert broken["status"] == "failed"
    assert broken["error"] == {"code": -31001, "message": "out of order", "data": {"since": "noon"}}
    assert broken["statusMessage"] == "out of order"
    assert "result" not in broken
    assert (lied["status"], lied["error"]["code"]) == ("failed", -32603), "K12: the output contract"


@pytest.mark.rule("K21")
async def test_a_task_that_says_nothing_is_renewed_from_its_claim_on(works: Works) -> None:
    """A worker that had nothing to do renews the lease of the first task that it takes, long before its end."""
    short = {"MCPFLEET_TASK_LEASE": "1", "MCPFLEET_TASK_EXTENDS": "0.3", "MCPFLEET_TASKS_SWEEP": "0.1"}
    async with LocalFleet(works.app, environment=short) as fleet, fleet.http() as http:
        client = TaskClient(http)
        done = await client.until(await client.start("silent", seconds=2.5))
    assert text_of(done) == "at last"
    assert works.runs == ["silent"]


@pytest.mark.rule("K8")
async def test_unknown_and_foreign_tasks_are_the_same(works: Works) -> None:
    environment = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps({"tokens": TOKENS})}
    async with LocalFleet(works.app, environment=environment) as fleet, fleet.http() as http:
        ann = TaskClient(http, headers={"Authorization": "Bearer of-ann"})
        bob = TaskClient(http, headers={"Authorization": "Bearer of-bob"})
        task = await ann.start("hold")
        foreign = [await refusal_of(bob, method, task) for method in ("tasks/get", "tasks/update", "tasks/cancel")]
        unknown = [await refusal_of(bob, method, "x" * 32) for method in ("tasks/get", "tasks/update", "tasks/cancel")]
        assert (await ann.get(task))["status"] == "working"
        works.release.set()
    assert foreign == unknown
    assert {error["code"] for error in foreign} == {-32602}
    assert len({error["message"] for error in foreign}) == 1


@pytest.mark.rule("K8")
async def test_unknown_foreign_and_expired_tasks_are_the_same_bytes(works: Works) -> None:
    """Status, head and body, of each method."""
    environment = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps({"tokens": TOKENS})}
    async with LocalFleet(works.app, environment=environment) as fleet, fleet.http() as http:
        ann = TaskClient(http, headers={"Authorization": "Bearer of-ann"})
        bob = TaskClient(http, headers={"Authorization": "Bearer of-bob"})
        foreign, expired = await ann.start("hold"), await bob.start("brief")
        with anyio.fail_after(10):
            while "result" in (await bob.post("tasks/get", {"taskId": expired})).json():
                await pause()
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            told = {await bytes_of(bob, method, task) for task in (foreign, expired, "x" * 32)}
            assert len(told) == 1, told
        works.release.set()


async def bytes_of(client: TaskClient, method: str, task: str) -> tuple[int, bytes, tuple[tuple[str, str], ...]]:
    """Everything that an answer says, apart from when, and which of the client's requests it is for."""
    params = {"taskId": task, **({"inputResponses": {}} if method == "tasks/update" else {})}
    answer = await client.post(method, params)
    number = json.loads(answer.request.content)["id"]
    head = tuple(sorted((name, value) for name, value in answer.headers.items() if name != "date"))
    body = answer.content.replace(b'"id":%d' % number, b'"id":0')
    return answer.status_code, body, tuple((name, value) for name, value in head if name != "content-length")


async def refusal_of(client: TaskClient, method: str, task: str) -> dict[str, Any]:
    return await client.refusal(method, {"taskId": task, "inputResponses": {}})


@pytest.mark.rule("K10", "M67")
async def test_a_cancel_is_acknowledged_and_ends_the_run(works: Works) -> None:
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        task = await client.start("hold")
        await until(lambda: works.runs == ["hold"])
        acknowledged = await client.cancel(task)
        ended = await client.until(task, within=5)
        again = await client.cancel(task)
    assert acknowledged.keys() == again.keys() == {"_meta", "resultType"}
    assert ended["status"] == "cancelled"
    assert works.cancelled == ["hold"]


async def test_progress_is_the_status_message(works: Works) -> None:
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        task = await client.start("hold")
        await until(lambda: works.runs == ["hold"])
        while "statusMessage" not in (found := await client.get(task)):
            await pause()
        works.release.set()
        done = await client.until(task)
    assert found["statusMessage"] == "holding (1 of 3)"
    assert text_of(done) == "released"


@pytest.mark.rule("M70", "K9")
async def test_questions_are_answered_in_parts_and_bad_answers_take_nothing(works: Works) -> None:
    async with LocalFleet(works.app, workers=2) as fleet, fleet.http() as http:
        client = TaskClient(http)
        task = await client.start("both")
        asked = await client.until(task, "input_required")
        assert set(asked["inputRequests"]) == {"month", "sure"}
        bad = {"month": {"action": "accept", "content": {"number": 5}}, "sure": {"action": "accept", "content": {}}}
        refused = await client.refusal("tasks/update", {"taskId": task, "inputResponses": bad})
        assert refused["code"] == -32602
        assert set((await client.get(task))["inputRequests"]) == {"month", "sure"}
        await client.update(task, unknown={"ignored": True})
        await client.update(task, month={"number": 5})
        partly = await client.get(task)
        assert (partly["status"], set(partly["inputRequests"])) == ("input_required", {"sure"})
        await client.update(task, month={"number": 6}, sure={"yes": True})
        done = await client.until(task)
    assert text_of(done) == "5 True"


@pytest.mark.rule("K11")
async def test_a_poll_that_shows_a_question_needs_what_it_takes_to_answer(works: Works) -> None:
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        task = await client.start("report", account="a")
        await client.until(task, "input_required")
        refused = await client.refusal("tasks/get", {"taskId": task}, capabilities=TASKS)
        unknown = await client.refusal("tasks/get", {"taskId": "x" * 32}, capabilities=TASKS)
        assert (await client.get(task))["status"] == "input_required"
    assert refused["code"] == -32021
    assert refused["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}
    assert "elicitation" in refused["message"]
    assert unknown["code"] == -32602, "what is not there comes first"


async def test_a_step_is_remembered_over_attempts_and_has_one_key(works: Works) -> None:
    async with LocalFleet(works.app, workers=2) as fleet, fleet.http() as http:
        client = TaskClient(http)
        task = await client.start("report", account="a")
        await client.until(task, "input_required")
        await client.update(task, month={"number": 7})
        done = await client.until(task)
    assert text_of(done) == "rows of a rows of a-7"
    assert works.runs == ["report", "report"]
    assert works.steps == ["a", "a-7"], "the first is not done again; the same name with other arguments is another"
    assert None not in works.keys
    assert len(set(works.keys)) == 2


@pytest.mark.rule("M69")
async def test_what_rounds_gathered_goes_with_the_task(works: Works) -> None:
    async with LocalFleet(works.app, edges=2, workers=2) as fleet, fleet.http(0) as one, fleet.http(1) as two:
        client = TaskClient(one)
        asked = await client.call("later")
        assert asked["resultType"] == "input_required"
        assert "taskId" not in asked
        answers = {"month": {"action": "accept", "content": {"number": 3}}}
        handle = await TaskClient(two).call("later", inputResponses=answers, requestState=asked["requestState"])
        assert handle["resultType"] == "task"
        assert "requestState" not in handle
        again = await client.until(handle["taskId"], "input_required")
        assert set(again["inputRequests"]) == {"sure"}
        await client.update(handle["taskId"], sure={"yes": True})
        done = await client.until(handle["taskId"])
    assert text_of(done) == "3 rows of x True"
    assert works.steps == ["x"]


@pytest.mark.rule("K2")
async def test_an_optional_task_runs_inline_for_who_takes_none(works: Works) -> None:
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        client = TaskClient(http, capabilities={"elicitation": {}})
        asked = await client.call("later", task={"ttl": 1})
        answers = {"month": {"action": "accept", "content": {"number": 3}}}
        result = await client.call("later", inputResponses=answers, requestState=asked["requestState"], task={"ttl": 1})
        refused = await client.refusal("tools/call", {"name": "must", "arguments": {}})
        taken = await TaskClient(http).call("must")
    assert result["content"][0]["text"] == "inline 3"
    assert (refused["code"], set(refused["data"]["requiredCapabilities"])) == (-32021, {"extensions"})
    assert taken["resultType"] == "task", "K2"


async def test_an_attempt_that_asks_for_another_gets_it(works: Works) -> None:
    async with LocalFleet(works.app, factor=5) as fleet, fleet.http() as http:
        client = TaskClient(http)
        done = await client.until(await client.start("flaky", times=3))
    assert text_of(done) == "after 3"


@pytest.mark.rule("K21")
async def test_a_draining_worker_gives_its_tasks_back(works: Works) -> None:
    async with LocalFleet(works.app, workers=1) as fleet, fleet.http() as http:
        client = TaskClient(http)
        task = await client.start("hold")
        await until(lambda: works.runs == ["hold"])
        await fleet.workers[0].stop()
        assert works.cancelled == ["hold"]
        assert (await client.get(task))["status"] == "working"
        works.release.set()
        await fleet.add_worker()
        done = await client.until(task, within=8)
    assert text_of(done) == "released"
    assert works.runs == ["hold", "hold"]


@pytest.mark.rule("M71")
async def test_what_the_older_extension_had_is_gone(works: Works) -> None:
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        for method in ("tasks/result", "tasks/list"):
            assert (await client.refusal(method, {"taskId": "x" * 32}))["code"] == -32601, "K14"
        found = await client.ask("server/discover", {})
        tools = (await client.ask("tools/list", {}))["tools"]
    assert "tasks" not in found["capabilities"]
    assert all("execution" not in tool for tool in tools)


@pytest.mark.rule("K21")
async def test_a_task_whose_workers_vanished_twice_runs_alone_and_calls_go_on() -> None:
    """Its third worker is left alone by other tasks, and not by calls (docs/operations.md)."""
    app, gate = App("works", version="1"), threading.Event()
    runs: dict[str, list[int]] = {"suspect": [], "other": [], "call": []}

    def note(what: str) -> None:
        runs[what].append(threading.get_ident())  # each worker has a thread for its handlers

    @app.tool(task="required")
    async def suspect() -> str:
        note("suspect")
        while not gate.is_set():  # noqa: ASYNC110  # each of the three workers has a loop of its own
            await anyio.sleep(0.02)
        return "released"

    @app.tool(task="required")
    async def other() -> str:
        note("other")
        return "done"

    @app.tool()
    async def call() -> str:
        note("call")
        return "answered"

    async with LocalFleet(app, factor=10) as fleet, fleet.http() as http:
        client = TaskClient(http)
        first = await client.start("suspect")
        for number in (1, 2):
            await until(lambda number=number: len(runs["suspect"]) == number)  # type: ignore[misc]
            await fleet.workers[-1].kill()
            await fleet.add_worker()
        await until(lambda: len(runs["suspect"]) == 3)
        second = await client.start("other")
        await client.call("call")
        await fleet.add_worker()
        await until(lambda: len(runs["other"]) == 1)
        gate.set()
        assert text_of(await client.until(first)) == "released"
        assert text_of(await client.until(second)) == "done"
    assert runs["other"][0] != runs["suspect"][-1]
    assert runs["call"][0] == runs["suspect"][-1]
