"""Listen streams that name tasks: what they are told, and what not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpfleet.bus.memory.faults import Faults
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.listener import ACK, END, KEY, Listener, listening
from tests.contract.fleet.tasks_app import Works
from tests.contract.fleet.test_tasks import TOKENS
from tests.kit.tasks import CAPABLE, EXTENSION, TaskClient
from tests.kit.waiting import until

TOLD = "notifications/tasks"


@pytest.fixture
def works() -> Works:
    return Works()


def statuses(stream: Listener) -> list[str]:
    """The states that a stream was told of."""
    return [each["params"]["status"] for each in stream.messages if each.get("method") == TOLD]


def echoed(stream: Listener) -> dict[str, Any]:
    """The filter that the acknowledgment honours."""
    assert stream.kinds()[0] == ACK
    found: dict[str, Any] = stream.messages[0]["params"]["notifications"]
    return found


@pytest.mark.rule("M73", "K15")
async def test_a_stream_at_another_edge_is_told_what_a_poll_would_say(works: Works) -> None:
    async with LocalFleet(works.app, edges=2) as fleet, fleet.http(0) as one, fleet.http(1) as two:
        client = TaskClient(one)
        task = await client.start("both")
        await client.until(task, "input_required")
        async with listening(two, "/mcp", capabilities=CAPABLE, taskIds=[task, task, "x" * 32]) as [stream]:
            assert echoed(stream) == {"taskIds": [task]}, "K16: once, and nothing of what is not there"
            assert stream.kinds() == [ACK], "K18: no snapshot"
            await client.update(task, month={"number": 5})
            await until(lambda: statuses(stream) == ["input_required"])
            await client.update(task, sure={"yes": True})
            await until(lambda: statuses(stream)[-1:] == ["completed"])
        polled = await client.get(task)
    last = stream.messages[-1]["params"]
    assert last.pop("_meta") == {KEY: 1}
    assert last == {name: value for name, value in polled.items() if name not in ("_meta", "resultType")}
    assert set(stream.kinds()) == {ACK, TOLD}
    assert set(statuses(stream)) <= {"input_required", "working", "completed"}
    assert statuses(stream).count("completed") == 1


@pytest.mark.rule("K11")
async def test_a_stream_is_not_told_of_questions_that_its_client_cannot_answer(works: Works) -> None:
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        client = TaskClient(http)
        task = await client.start("hold")
        await until(lambda: works.runs == ["hold"])
        asking = await client.start("both")
        await client.until(asking, "input_required")
        bare: dict[str, Any] = {"extensions": {EXTENSION: {}}}
        async with listening(http, "/mcp", capabilities=bare, taskIds=[task, asking]) as [stream]:
            await client.update(asking, month={"number": 5})
            works.release.set()
            await until(lambda: "completed" in statuses(stream))
            assert "input_required" not in statuses(stream)
            assert set(stream.kinds()) == {ACK, TOLD}, "M73: no progress, which this task reports, and no log"


@pytest.mark.rule("N11")
async def test_an_edge_watches_so_many_different_tasks_for_however_many_streams(works: Works) -> None:
    async with (
        LocalFleet(works.app, environment={"MCPFLEET_WATCHED_TASKS": "1"}) as fleet,
        fleet.http() as http,
    ):
        client = TaskClient(http)
        task, other = await client.start("hold"), await client.start("hold")
        async with listening(http, "/mcp", 3, capabilities=CAPABLE, taskIds=[task]) as streams:
            assert [echoed(stream) for stream in streams] == [{"taskIds": [task]}] * 3
            refused = Listener(capabilities=CAPABLE)
            await refused.run(http, "/mcp", {"taskIds": [other]})
            assert refused.status == 503
        works.release.set()


@pytest.mark.rule("D2")
async def test_who_takes_no_tasks_is_refused_before_any_look_up(works: Works) -> None:
    async with LocalFleet(works.app) as fleet, fleet.http() as http:
        params = {"notifications": {"taskIds": ["x" * 32]}}
        refused = await TaskClient(http).refusal("subscriptions/listen", params, capabilities={})
    assert refused["code"] == -32021


@pytest.mark.rule("K16")
async def test_what_is_unknown_or_another_callers_is_disclosed_to_nobody(works: Works) -> None:
    environment = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps({"tokens": TOKENS})}
    async with LocalFleet(works.app, environment=environment) as fleet, fleet.http() as http:
        task = await TaskClient(http, headers={"Authorization": "Bearer of-ann"}).start("hold")
        asked: dict[str, Any] = {"token": "of-bob", "capabilities": CAPABLE, "taskIds": [task]}
        async with listening(http, "/mcp", **asked) as [stream]:
            await stream.over()
            assert echoed(stream) == {}
            assert stream.kinds() == [ACK, END]
        works.release.set()


@pytest.mark.rule("K15", "invariant 5")
async def test_a_lost_hint_is_made_good_by_versions(works: Works) -> None:
    environment = {"MCPFLEET_HEAL_INTERVAL": "0.3"}
    async with LocalFleet(works.app, environment=environment) as fleet, fleet.http() as http:
        client = TaskClient(http)
        task = await client.start("hold")
        await until(lambda: works.runs == ["hold"])
        async with listening(http, "/mcp", capabilities=CAPABLE, taskIds=[task]) as [stream]:
            fleet.switch.misbehave(Faults(lost=1.0, subjects=("*.hint.task.*",)))
            works.release.set()
            await until(lambda: statuses(stream)[-1:] == ["completed"])
