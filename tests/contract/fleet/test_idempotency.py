"""Calls under an idempotency key: one effect, whoever repeats them, wherever (D9)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.tasks_app import Works
from tests.kit.tasks import TaskClient, text_of
from tests.kit.waiting import until

REPEAT = "mcpfleet/repeat"


@pytest.fixture
def works() -> Works:
    return Works()


def said(result: dict[str, Any]) -> str:
    return text_of({"result": result})


async def test_i2_a_repeat_gets_the_first_result_and_is_marked(works: Works) -> None:
    async with LocalFleet(works.app, edges=2) as fleet, fleet.http(0) as one, fleet.http(1) as two:
        first = await TaskClient(one).call("pay", {"amount": 5, "request": "r1"})
        again = await TaskClient(two).call("pay", {"request": "r1", "amount": 5})
        other = await TaskClient(two).call("pay", {"amount": 5, "request": "r2"})
    assert said(first) == said(again) == "paid 5 (1)"
    assert (REPEAT in first["_meta"], again["_meta"][REPEAT]) == (False, True)
    assert said(other) == "paid 5 (2)"


async def test_d9_other_arguments_under_a_key_are_refused(works: Works) -> None:
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        await client.call("pay", {"amount": 5, "request": "r1"})
        other = await client.call("pay", {"amount": 6, "request": "r1"})
    assert other["isError"] is True
    assert "other arguments" in said(other)
    assert works.runs == ["pay"]


async def test_i1_a_hundred_repeats_at_two_edges_wait_outside_of_slots_and_run_nothing(works: Works) -> None:
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
        await until(lambda: works.runs == ["pay"])
        # All but one wait, and there is a slot for something else.
        assert said(await clients[0].call("pay", {"amount": 1, "request": "r2"})) == "paid 1 (2)"
        works.release.set()
        await until(lambda: len(results) == 100)
    assert set(results) == {"paid 500 (2)"}
    assert works.runs == ["pay", "pay"]


async def test_d9_an_outcome_that_nobody_knows_stays_uncertain(works: Works) -> None:
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        params = {"name": "pay", "arguments": {"amount": 13, "request": "r1"}}
        assert (await client.refusal("tools/call", params))["code"] == -31002
        again = [said(await client.call("pay", params["arguments"])) for _ in range(2)]  # type: ignore[arg-type]
    assert all("nobody knows" in each for each in again), "I3: it says how to find out"
    assert works.runs == ["pay"]


async def test_d9_a_repeat_of_a_task_gets_its_handle(works: Works) -> None:
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
