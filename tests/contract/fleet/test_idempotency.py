"""Calls under an idempotency key: one effect, whoever repeats them, wherever (D9)."""

# Longer than 400 lines: one rule, D9, by every way on which a repeat can come.

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest

from mcpfleet.app import App, CallNext, Context, InvalidArguments, Invocation, Problem, ToolError
from mcpfleet.testing.local import LocalFleet
from mcpfleet.wire.protocol import IDEMPOTENCY_KEY, REPEAT
from tests.contract.fleet.tasks_app import Works
from tests.kit.tasks import TaskClient, text_of
from tests.kit.waiting import until


@pytest.fixture
def works() -> Works:
    return Works()


def said(result: dict[str, Any]) -> str:
    return text_of({"result": result})


@pytest.mark.rule("I2")
async def test_a_repeat_gets_the_first_result_and_is_marked(works: Works) -> None:
    async with LocalFleet(works.app, edges=2) as fleet, fleet.http(0) as one, fleet.http(1) as two:
        first = await TaskClient(one).call("pay", {"amount": 5, "request": "r1"})
        again = await TaskClient(two).call("pay", {"request": "r1", "amount": 5})
        other = await TaskClient(two).call("pay", {"amount": 5, "request": "r2"})
    assert said(first) == said(again) == "paid 5 (1)"
    assert (REPEAT in first["_meta"], again["_meta"][REPEAT]) == (False, True)
    assert said(other) == "paid 5 (2)"


@pytest.mark.rule("D9")
async def test_other_arguments_under_a_key_are_refused(works: Works) -> None:
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        await client.call("pay", {"amount": 5, "request": "r1"})
        other = await client.call("pay", {"amount": 6, "request": "r1"})
    assert other["isError"] is True
    assert "other arguments" in said(other)
    assert works.runs == ["pay"]


@pytest.mark.rule("I1")
async def test_a_hundred_repeats_at_two_edges_wait_outside_of_slots_and_run_nothing(works: Works) -> None:
    results: list[str] = []

    async def call(client: TaskClient) -> None:
        results.append(said(await client.call("pay", {"amount": 500, "request": "r1"})))

    environment = {"MCPFLEET_SLOTS": "2"}
    async with (
        LocalFleet(works.app, edges=2, environment=environment) as fleet,
        fleet.http(0) as one,
        fleet.http(1) as two,
        anyio.create_task_group() as tasks,
    ):
        clients = TaskClient(one), TaskClient(two)
        for number in range(100):
            tasks.start_soon(call, clients[number % 2])
        await until(lambda: works.runs == ["pay"], within=30)
        # All but one wait, and there is a slot for something else.
        assert said(await clients[0].call("pay", {"amount": 1, "request": "r2"})) == "paid 1 (2)"
        works.release.set()
        await until(lambda: len(results) == 100, within=50)
    assert set(results) == {"paid 500 (2)"}
    assert works.runs == ["pay", "pay"]


@pytest.mark.rule("N11")
async def test_so_many_repeats_wait_at_an_edge_and_more_get_503(works: Works) -> None:
    statuses: list[int] = []
    params = {"name": "pay", "arguments": {"amount": 500, "request": "r1"}}

    async def call(client: TaskClient) -> None:
        statuses.append((await client.post("tools/call", params)).status_code)

    async with (
        LocalFleet(works.app, environment={"MCPFLEET_REPEATS_WAITING": "2"}) as fleet,
        fleet.http() as http,
        anyio.create_task_group() as tasks,
    ):
        client = TaskClient(http)
        tasks.start_soon(call, client)
        await until(lambda: works.runs == ["pay"])
        for _ in range(4):
            tasks.start_soon(call, client)
        await until(lambda: statuses == [503, 503])
        works.release.set()
        await until(lambda: len(statuses) == 5)
    assert statuses == [503, 503, 200, 200, 200]
    assert works.runs == ["pay"]


@pytest.mark.rule("D9")
async def test_an_outcome_that_nobody_knows_stays_uncertain(works: Works) -> None:
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        params = {"name": "pay", "arguments": {"amount": 13, "request": "r1"}}
        assert (await client.refusal("tools/call", params))["code"] == -31002
        again = [said(await client.call("pay", params["arguments"])) for _ in range(2)]  # type: ignore[arg-type]
    assert all("unknown" in each for each in again), "I3: it says how to find out"
    assert works.runs == ["pay"]


@pytest.mark.rule("D9")
async def test_a_repeat_of_a_task_gets_its_handle(works: Works) -> None:
    async with LocalFleet(works.app, edges=2) as fleet, fleet.http(0) as one, fleet.http(1) as two:
        for tool in ("order", "book"):
            first = await TaskClient(one).call(tool, {"item": "tea", "request": "r1"})
            again = await TaskClient(two).call(tool, {"item": "tea", "request": "r1"})
            assert first["taskId"] == again["taskId"], tool
            assert again["_meta"][REPEAT] is True
            await TaskClient(one).until(first["taskId"])
        refused = await TaskClient(one, capabilities={}).refusal(
            "tools/call", {"name": "book", "arguments": {"item": "tea", "request": "r1"}}
        )
    assert refused["code"] == -32021
    assert works.runs == ["order", "book"]


@pytest.mark.rule("D19")
async def test_a_call_that_did_not_begin_leaves_its_key_free() -> None:
    app, runs = App("desk", version="1"), list[str]()

    @app.interceptor
    async def closed_on_mondays(invocation: Invocation, call_next: CallNext) -> Any:
        if invocation.arguments.get("day") == "monday":
            raise ToolError("closed")
        return await call_next(replace(invocation, ctx=Context()))

    @app.tool(idempotency_key="request")
    async def reserve(request: str, day: str) -> str:
        runs.append(day)
        if day == "sunday":
            raise InvalidArguments([Problem("day", "must be a weekday")])
        return day

    async with LocalFleet(app, edges=2) as fleet, fleet.http(0) as one, fleet.http(1) as two:
        first, second = TaskClient(one), TaskClient(two)
        assert "Invalid arguments" in said(await first.call("reserve", {"request": "r1", "day": 5}))
        assert said(await second.call("reserve", {"request": "r1", "day": "monday"})) == "closed"
        assert said(await first.call("reserve", {"request": "r1", "day": "friday"})) == "friday"
        assert "other arguments" in said(await second.call("reserve", {"request": "r1", "day": "monday"}))
        # A handler that refuses by itself has begun.
        for client in (first, second):
            assert "weekday" in said(await client.call("reserve", {"request": "r2", "day": "sunday"}))
    assert runs == ["friday", "sunday"]


@pytest.mark.rule("D19")
async def test_a_whole_number_is_the_same_key_in_any_spelling() -> None:
    app, runs = App("desk", version="1"), list[int]()

    @app.tool(idempotency_key="number")
    async def reserve(number: int) -> str:
        runs.append(number)
        return f"{number} ({len(runs)})"

    async with LocalFleet(app, edges=2) as fleet, fleet.http(0) as one, fleet.http(1) as two:
        said_of = [said(await TaskClient(http).call("reserve", {"number": n})) for http in (one, two) for n in (5, 5.0)]
    assert said_of == ["5 (1)"] * 4
    assert runs == [5]


# -- connections that are cut, and keys beside the arguments --------------------------------------------------------


@dataclass
class KeyedApp:
    """An application whose effects are counted, and which answers once it is let."""

    effects: list[str] = field(default_factory=list)
    release: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.app = App("desk", version="1")

        @self.app.tool(idempotency_key="request")
        async def place(request: str) -> str:
            return await self.answered("place")

        @self.app.tool(idempotency_key=True, on_disconnect="cancel")
        async def stop(book: int) -> str:
            return await self.answered("stop")

        @self.app.tool(idempotency_key=True)
        async def remove(book: int) -> str:
            return await self.answered("remove")

        @self.app.tool(on_disconnect="continue")
        async def blind() -> str:
            return await self.answered("blind")

        @self.app.tool(on_disconnect="continue")
        async def report(ctx: Context) -> str:
            return await self.steps("report", ctx)

        @self.app.tool(idempotency_key=True)
        async def keyed_report(ctx: Context) -> str:
            return await self.steps("keyed_report", ctx)

        @self.app.tool(task="required", idempotency_key=True)
        async def task_report(ctx: Context) -> str:
            return await self.steps("task_report", ctx)

    async def answered(self, what: str) -> str:
        """Have the effect, and answer late."""
        self.effects.append(what)
        await self.release.wait()
        return what

    async def steps(self, what: str, ctx: Context) -> str:
        """Do six steps; whoever waits is let go on after the second."""
        for number in range(6):
            self.effects.append(what)
            await ctx.progress(number + 1, total=6)
            if number == 1:
                await self.release.wait()
        return what


def named(key: object) -> dict[str, Any]:
    """The members of a request beside its arguments."""
    return {"_meta": {IDEMPOTENCY_KEY: key}}


async def cut(keyed: KeyedApp, client: TaskClient, tool: str, times: int = 1, **members: Any) -> None:
    """Call a tool, and close the connection after its effect."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: client.call(tool, **members))
        await until(lambda: keyed.effects.count(tool) == times)
        tasks.cancel_scope.cancel()


@pytest.mark.rule("I1", "I2")
async def test_what_was_cut_after_its_effect_is_answered_to_the_retry() -> None:
    keyed = KeyedApp()
    async with LocalFleet(keyed.app, edges=2) as fleet, fleet.http(0) as one, fleet.http(1) as two:
        for tool, members in (
            ("place", {"arguments": {"request": "r1"}}),
            ("remove", {"arguments": {"book": 1}, **named("k1")}),
        ):
            await cut(keyed, TaskClient(one), tool, **members)
            results: list[dict[str, Any]] = []

            async def retry(
                client: TaskClient, tool: str = tool, members: Any = members, results: Any = results
            ) -> None:
                results.append(await client.call(tool, **members))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(retry, TaskClient(one))
                tasks.start_soon(retry, TaskClient(two))
                keyed.release.set()
            assert [(said(each), each["_meta"][REPEAT]) for each in results] == [(tool, True)] * 2
            keyed.release = anyio.Event()
    assert keyed.effects == ["place", "remove"]


@pytest.mark.rule("D12")
async def test_what_a_leaving_client_cancels_is_uncertain_under_its_key() -> None:
    keyed = KeyedApp()
    async with LocalFleet(keyed.app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        await cut(keyed, client, "stop", arguments={"book": 1}, **named("k1"))
        again = await client.call("stop", {"book": 1}, **named("k1"))
    assert again["isError"] is True
    assert "unknown" in said(again)
    assert keyed.effects == ["stop"]


@pytest.mark.rule("I3", "D9")
async def test_a_call_whose_worker_died_is_uncertain_and_under_a_key_stays_so() -> None:
    """Without a key a blind retry has a second effect (I1), which is why the error says to find out first."""
    keyed, results = KeyedApp(), []

    async def call(client: TaskClient, tool: str, arguments: dict[str, Any]) -> None:
        results.append(await client.call(tool, arguments))

    async with LocalFleet(keyed.app, edges=2, factor=10) as fleet, fleet.http(0) as one, fleet.http(1) as two:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, TaskClient(one), "blind", {})
            tasks.start_soon(call, TaskClient(one), "place", {"request": "r1"})
            await until(lambda: sorted(keyed.effects) == ["blind", "place"])
            await fleet.workers[0].kill()
        keyed.release.set()
        await fleet.add_worker()
        results += [await TaskClient(two).call("place", {"request": "r1"}) for _ in range(2)]
        assert said(await TaskClient(two).call("blind")) == "blind"
    assert sorted(keyed.effects) == ["blind", "blind", "place"]
    assert all(each["isError"] for each in results)
    assert all("outcome is uncertain" in said(each) and "read-only tool" in said(each) for each in results[:2])
    assert all("unknown" in said(each) and "read-only tool" in said(each) for each in results[2:])


@pytest.mark.rule("I4")
async def test_what_is_cut_after_two_reports_is_done_again_unless_it_is_remembered() -> None:
    """Nothing is replayed: twelve steps for a job of six, and six under a key, or as a task."""
    keyed = KeyedApp()
    async with LocalFleet(keyed.app, edges=2) as fleet, fleet.http(0) as one, fleet.http(1) as two:
        for tool, members in (("report", {}), ("keyed_report", named("k1"))):
            await cut(keyed, TaskClient(one), tool, 2, **members)
            keyed.release.set()
            assert said(await TaskClient(two).call(tool, **members)) == tool
            keyed.release = anyio.Event()
        keyed.release.set()
        done = await TaskClient(one).until(await TaskClient(one).start("task_report"))
        resumed = await one.get("/mcp", headers={"Accept": "text/event-stream", "Last-Event-ID": "2"})
        await until(lambda: keyed.effects.count("report") == 12)
    assert text_of(done) == "task_report"
    assert {tool: keyed.effects.count(tool) for tool in ("keyed_report", "task_report")} == {
        "keyed_report": 6,
        "task_report": 6,
    }
    assert resumed.status_code == 405


@pytest.mark.rule("D9")
async def test_a_key_beside_the_arguments_is_told_of_in_the_list_and_held_to_its_form() -> None:
    keyed = KeyedApp()
    keyed.release.set()
    async with LocalFleet(keyed.app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        tools = {tool["name"]: tool for tool in (await client.ask("tools/list", {}))["tools"]}
        for key in ("", 5, None, "x" * 257):
            params = {"name": "remove", "arguments": {"book": 1}, **named(key)}
            assert (await client.refusal("tools/call", params))["code"] == -32602, key
        assert keyed.effects == []
        await client.call("remove", {"book": 1}, **named("k1"))
        other = await client.call("remove", {"book": 2}, **named("k1"))
        for _ in range(2):
            assert REPEAT not in (await client.call("remove", {"book": 1}))["_meta"], "without a key it runs"
            assert REPEAT not in (await client.call("report", **named("k1")))["_meta"], "a tool that takes none runs"
    assert tools["remove"]["_meta"] == {IDEMPOTENCY_KEY: True}
    assert "_meta" not in tools["place"]
    assert "other arguments" in said(other)
    assert keyed.effects.count("remove") == 3
    assert IDEMPOTENCY_KEY.split("/")[0].split(".")[1] not in ("mcp", "modelcontextprotocol"), "M22"


@pytest.mark.rule("D9")
async def test_a_call_that_left_before_any_worker_had_it_leaves_its_key_free() -> None:
    keyed = KeyedApp()
    environment = {"MCPFLEET_SLOTS": "1", "MCPFLEET_QUEUE": "0"}
    async with LocalFleet(keyed.app, environment=environment) as fleet, fleet.http() as http:
        client = TaskClient(http)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call, "blind")
            await until(lambda: keyed.effects == ["blind"])
            with anyio.move_on_after(0.5):
                await client.call("remove", {"book": 1}, **named("k1"))
            keyed.release.set()
        result = await client.call("remove", {"book": 1}, **named("k1"))
    assert (said(result), REPEAT in result["_meta"]) == ("remove", False)


@pytest.mark.rule("K14")
async def test_a_lost_handle_is_found_by_the_key_of_its_call() -> None:
    """K21: there is no list to look it up in."""
    keyed = KeyedApp()
    keyed.release.set()
    async with LocalFleet(keyed.app, edges=2) as fleet, fleet.http(0) as one, fleet.http(1) as two:
        first = await TaskClient(one).call("task_report", **named("k1"))
        again = await TaskClient(two).call("task_report", **named("k1"))
        other = await TaskClient(two).call("task_report", **named("k2"))
    assert first["taskId"] == again["taskId"] != other["taskId"]
    assert (REPEAT in first["_meta"], again["_meta"][REPEAT]) == (False, True)


@pytest.mark.rule("I2")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_clients_of_2025_name_keys_and_hear_of_repeats_too(revision: str) -> None:
    keyed = KeyedApp()
    keyed.release.set()
    headers = {"MCP-Protocol-Version": revision, "Accept": "application/json, text/event-stream"}
    params = {"name": "remove", "arguments": {"book": 1}, **named("k1")}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with LocalFleet(keyed.app) as fleet, fleet.http() as http:
        results = [(await http.post("/mcp", json=body, headers=headers)).json()["result"] for _ in range(2)]
    assert [said(result) for result in results] == ["remove"] * 2
    assert [result.get("_meta", {}).get(REPEAT) for result in results] == [None, True]
    assert keyed.effects == ["remove"]


def told(fleet: LocalFleet, outcome: str) -> float:
    """How often the tasks service has told this of a key."""
    families = {family.name: family for family in fleet.tasks.process.telemetry.metrics.read()}
    return sum(point.value for point in families["mcpfleet.tasks.reserved"].points if point.labels == (outcome,))


@pytest.mark.rule("D9")
async def test_a_moment_without_the_tasks_service_ends_no_waiting() -> None:
    keyed, results = KeyedApp(), list[dict[str, Any]]()
    async with LocalFleet(keyed.app, edges=2) as fleet, fleet.http(0) as one, fleet.http(1) as two:

        async def call(client: TaskClient) -> None:
            results.append(await client.call("place", {"request": "r1"}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, TaskClient(one))
            await until(lambda: keyed.effects == ["place"])
            tasks.start_soon(call, TaskClient(two))
            await until(lambda: told(fleet, "running") >= 2)  # it waits, and has asked again
            fleet.tasks.cut()
            await until(lambda: bool(fleet.lines("idempotency key not reserved")), within=15)
            fleet.tasks.heal()
            keyed.release.set()
    assert [said(each) for each in results] == ["place"] * 2
    assert keyed.effects == ["place"]
