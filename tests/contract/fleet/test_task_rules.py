"""Clauses of the rules of tasks that need a whole fleet: eras, the order of checks, admission, secrets, rollouts."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import anyio
import httpx2
import pytest

from mcpfleet.app import App, CallNext, Context, Invocation
from mcpfleet.bus import header
from mcpfleet.bus.port import Incoming
from mcpfleet.bus.service import bus_of
from mcpfleet.contracts.call import FrameKind, call_subject, frame_subject, replies_to_edge
from mcpfleet.contracts.permissions import pool_user
from mcpfleet.process.service import Process
from mcpfleet.testing.local import LocalFleet
from mcpfleet.worker.settings import WorkerSettings
from tests.contract.fleet.listener import listening
from tests.contract.fleet.tasks_app import Works
from tests.contract.fleet.test_stream_permission import revoke
from tests.kit.tasks import CAPABLE, EXTENSION, TaskClient, text_of
from tests.kit.waiting import until

ANN, LESS = "of-ann", "of-ann-with-less"
TOKENS = {
    "tokens": [
        {"token": ANN, "subject": "ann", "scopes": ["read"], "audience": "mcp"},
        {"token": LESS, "subject": "ann", "audience": "mcp"},
    ]
}
BOB = {"token": "of-bob", "subject": "bob", "audience": "mcp"}
GUARDED = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps(TOKENS)}
METHODS = ("tasks/get", "tasks/update", "tasks/cancel")


@pytest.fixture
def works() -> Works:
    return Works()


def of(http: httpx2.AsyncClient, token: str) -> TaskClient:
    return TaskClient(http, headers={"Authorization": f"Bearer {token}"})


async def legacy(http: httpx2.AsyncClient, method: str, params: dict[str, Any], revision: str) -> dict[str, Any]:
    """Ask as a client of 2025 does, which may well say that it knows tasks."""
    headers = {"MCP-Protocol-Version": revision, "Accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer: dict[str, Any] = (await http.post("/mcp", json=body, headers=headers)).json()
    return answer


@pytest.mark.rule("K1", "M71")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_the_revisions_of_2025_have_no_tasks(works: Works, revision: str) -> None:
    capabilities: dict[str, Any] = {"extensions": {EXTENSION: {}}, "tasks": {"list": {}, "cancel": {}}}
    hello = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": {"name": "old", "version": "1"}}
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        found = (await legacy(http, "initialize", hello, revision))["result"]["capabilities"]
        tools = (await legacy(http, "tools/list", {}, revision))["result"]["tools"]
        params = {"name": "double", "arguments": {"number": 1}, "task": {"ttl": 1000}}
        called = (await legacy(http, "tools/call", params, revision))["result"]
        for method in (*METHODS, "tasks/result", "tasks/list"):
            refused = await legacy(http, method, {"taskId": "x" * 32, "inputResponses": {}}, revision)
            assert refused["error"]["code"] == -32601, method
    assert found.keys().isdisjoint({"extensions", "tasks"})
    assert all("execution" not in tool for tool in tools)
    assert called["isError"] is True
    assert "taskId" not in called
    assert works.runs == []


@pytest.mark.rule("K3")
async def test_the_refusal_comes_after_admission_and_before_limits_and_interceptors() -> None:
    app, seen = App("works", version="1"), list[str]()

    @app.interceptor
    async def around(invocation: Invocation, call_next: CallNext) -> Any:
        seen.append(invocation.name)
        return await call_next(invocation)

    @app.tool(task="required", rate=(1, 3600))
    async def rare() -> str:
        return "done"

    params = {"name": "rare", "arguments": {}}
    async with LocalFleet(app, environment=GUARDED) as fleet, fleet.http() as http:
        stranger = await TaskClient(http).post("tools/call", params, capabilities={})
        refusals = [await of(http, ANN).refusal("tools/call", params, capabilities={}) for _ in range(3)]
        assert seen == []
        done = await of(http, ANN).until(await of(http, ANN).start("rare"))
        limited = await of(http, ANN).post("tools/call", params)
    assert stranger.status_code == 401
    assert [refused["code"] for refused in refusals] == [-32021] * 3
    assert (text_of(done), seen) == ("done", ["rare"]), "a refusal has taken nothing of the limit"
    assert (limited.status_code, limited.json()["error"]["code"]) == (429, -31999)


@pytest.mark.rule("K5", "invariant 2")
async def test_a_handle_that_its_caller_could_not_read_does_not_leave(works: Works) -> None:
    """A worker that lies: it says that a call became a task that is another caller's, or none."""
    environment = GUARDED | {"MCPFLEET_TOKENS": json.dumps({"tokens": [*TOKENS["tokens"], BOB]})}
    async with LocalFleet(works.app, environment=environment) as fleet, fleet.http() as http:
        anns = await of(http, ANN).start("hold")
        await fleet.workers[0].kill()
        settings = WorkerSettings()
        process = Process("liar", settings)
        user = pool_user(fleet.pool)
        bus = bus_of(process, user, fleet.switch.connector(user, settings, process=process.id))
        said = iter([anns, "x" * 32, "no id"])

        def lie(message: Incoming) -> None:
            sent = header.read(message.header)
            assert sent is not None
            call, edge = sent.extra[:2]
            bus.publish(
                frame_subject(edge, fleet.pool, call, FrameKind.TASK), next(said).encode(), header=f"1 {process.id}"
            )

        async with anyio.create_task_group() as tasks:
            await tasks.start(bus.run)
            await bus.wait_up()
            digest = works.app.tools["must"].definition.digest
            await bus.subscribe(call_subject(fleet.pool, digest), lie, "workers", asked_by=replies_to_edge)
            bob = of(http, BOB["token"])
            refused = [await bob.refusal("tools/call", {"name": "must", "arguments": {}}) for _ in range(3)]
            tasks.cancel_scope.cancel()
    assert [error["code"] for error in refused] == [-32602] * 3
    assert anns not in json.dumps(refused)


@pytest.mark.rule("K6")
async def test_what_a_task_is_made_from_is_neither_logged_nor_sent(works: Works) -> None:
    async with LocalFleet(works.app, environment={"MCPFLEET_LOG_LEVEL": "debug"}) as fleet, fleet.http() as http:
        client = TaskClient(http)
        handle = await client.call("report", {"account": "secret-account"})
        asked = await client.until(handle["taskId"], "input_required")
        async with listening(http, "/mcp", capabilities=CAPABLE, taskIds=[handle["taskId"]]) as [stream]:
            await client.cancel(handle["taskId"])
            await until(lambda: len(stream.messages) > 1)
        said = json.dumps([handle, asked, stream.messages])
        assert "secret-account" not in said
        assert "secret-account" not in fleet.logs()


@pytest.mark.rule("K8")
async def test_every_method_is_admitted_afresh_and_an_id_is_no_authority(works: Works) -> None:
    async with LocalFleet(works.app, environment=GUARDED) as fleet, fleet.http() as http:
        client = of(http, ANN)
        task = await client.start("hold")
        assert (await client.get(task))["status"] == "working"
        await revoke(fleet, "ann")
        answers = [await client.post(method, {"taskId": task, "inputResponses": {}}) for method in METHODS]
        works.release.set()
    assert [answer.status_code for answer in answers] == [401] * 3


@pytest.mark.rule("K10")
async def test_a_connection_that_closes_cancels_no_task(works: Works) -> None:
    """A cancel of HTTP is of a request; a task has a method of its own for it."""
    async with LocalFleet(works.app, edges=2) as fleet:
        async with fleet.http(0) as one:
            task = await TaskClient(one).start("hold")
            await until(lambda: works.runs == ["hold"])
            async with listening(one, "/mcp", capabilities=CAPABLE, taskIds=[task]), anyio.create_task_group() as tasks:
                tasks.start_soon(TaskClient(one).get, task)
                tasks.cancel_scope.cancel()
        async with fleet.http(1) as two:
            assert (await TaskClient(two).get(task))["status"] == "working"
            works.release.set()
            assert text_of(await TaskClient(two).until(task)) == "released"
    assert works.cancelled == []


@pytest.mark.rule("K12")
async def test_a_removed_tool_hides_no_result_and_a_lost_permission_hides_the_task() -> None:
    app, newer = App("works", version="1"), App("works", version="2")

    @app.tool(task="required", scopes=["read"])
    async def gone() -> int:
        return 42

    @newer.tool()
    async def other() -> int:
        return 1

    async with LocalFleet(app, environment=GUARDED) as fleet, fleet.http() as http:
        full, less = of(http, ANN), of(http, LESS)
        task = await full.start("gone")
        await full.until(task)
        await fleet.add_worker(newer)
        await fleet.workers[0].stop()
        while "extensions" in (await full.ask("server/discover", {}))["capabilities"]:  # noqa: ASYNC110
            await anyio.sleep(0.01)  # until the list is the newer one's, which has no tasks at all
        assert (await full.get(task))["result"]["structuredContent"] == 42
        hidden = [await less.refusal(method, {"taskId": task, "inputResponses": {}}) for method in METHODS]
        unknown = await less.refusal("tasks/get", {"taskId": "x" * 32})
        async with listening(http, "/mcp", token=LESS, capabilities=CAPABLE, taskIds=[task]) as [stream]:
            await stream.over()
    assert hidden == [unknown] * 3
    assert stream.messages[0]["params"]["notifications"] == {}


@pytest.mark.rule("M67", "M72")
async def test_an_update_says_nothing_of_the_task_and_polling_fast_is_not_refused(works: Works) -> None:
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        task = await client.start("report", account="a")
        await client.until(task, "input_required")
        acknowledged = [await client.update(task, nothing={"asked": 1}), await client.update(task, month={"number": 3})]
        polls = [(await client.post("tasks/get", {"taskId": task})).status_code for _ in range(30)]
        await client.until(task)
        acknowledged.append(await client.update(task, month={"number": 4}))
        unknown = [await client.refusal(method, {"taskId": "x" * 32, "inputResponses": {}}) for method in METHODS]
    assert [each.keys() for each in acknowledged] == [{"_meta", "resultType"}] * 3
    assert set(polls) == {200}
    assert {each["code"] for each in unknown} == {-32602}


@pytest.mark.rule("D9")
async def test_a_question_is_never_a_first_result(works: Works) -> None:
    app, runs = App("works", version="1"), list[str]()

    @app.tool(idempotency_key="request", may_ask={"elicitation.form"}, asks={"elicitation.form"})
    async def confirm(request: str, ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", {"type": "object", "properties": {"yes": {"type": "boolean"}}}, key="sure")
        runs.append(request)
        return str(answer["yes"])

    arguments = {"request": "r1"}
    async with LocalFleet(app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        asked = [await client.call("confirm", arguments) for _ in range(2)]
        assert {each["resultType"] for each in asked} == {"input_required"}
        answers = {"sure": {"action": "accept", "content": {"yes": True}}}
        again = {"inputResponses": answers, "requestState": asked[0]["requestState"]}
        first = await client.call("confirm", arguments, **again)
        repeat = await client.call("confirm", arguments)
    assert (text_of({"result": first}), text_of({"result": repeat})) == ("True", "True")
    assert "io.mcpfleet/repeat" in repeat["_meta"]
    assert runs == ["r1"]


@pytest.mark.rule("K32")
async def test_arguments_that_a_type_refuses_are_no_change_of_the_tool() -> None:
    app = App("desk", version="1")

    @app.tool(task="required")
    async def due(day: dt.date) -> str:
        return str(day)

    async with LocalFleet(app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        ended = await client.until(await client.start("due", day="soon"))
        alarms = fleet.lines("tool changed under its task")
    assert (ended["status"], ended["result"]["isError"]) == ("completed", True)
    assert text_of(ended) == "Invalid arguments: day: must be a date, such as 2026-01-31"
    assert alarms == []
