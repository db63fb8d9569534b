"""A tool of a source with `task`: durable tasks of ours over its calls, each of which is sent once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from mcpfleet.sources.source import Source
from mcpfleet.testing.local import LocalFleet
from tests.contract.hosting.hosting_harness import hosted_fleet, source
from tests.contract.hosting.test_hosted import call
from tests.kit.tasks import TaskClient, text_of
from tests.kit.waiting import pause

pytestmark = pytest.mark.asyncio(loop_scope="module")

TASKS: dict[str, Any] = {
    name: {"task": "optional"} for name in ("echo", "sleep", "fail", "die", "cancelled")
}  # fmt: skip


def slow(**members: Any) -> Source:
    """The small server, whose tools may be tasks."""
    return source(tools=TASKS, **members)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet() -> AsyncIterator[LocalFleet]:
    async with hosted_fleet(slow()) as running:
        yield running


async def until_ran(file: Path) -> None:
    """Wait until the source has begun the call that notes it there."""
    with anyio.fail_after(10):
        while not file.exists():  # noqa: ASYNC110, ASYNC240  # another process makes it
            await anyio.sleep(0.02)


@pytest.mark.rule("B2", "B4")
async def test_a_call_becomes_a_task_whose_result_has_every_member(fleet: LocalFleet) -> None:
    async with fleet.http() as http:
        client = TaskClient(http)
        done = await client.until(await client.start("echo", x=None))
    assert done["status"] == "completed"
    assert (done["result"]["unknown"], done["result"]["content"][1]["type"]) == ({"kept": True}, "hologram")
    assert done["result"]["structuredContent"]["arguments"] == {"x": None}


async def test_a_client_without_tasks_gets_the_result_itself(fleet: LocalFleet) -> None:
    assert (await call(fleet, "echo", {}))["result"]["resultType"] == "complete"
    async with fleet.client(mode="legacy") as client:
        assert (await client.call_tool("cancelled", {})).content


@pytest.mark.rule("B5")
async def test_progress_of_a_source_is_the_status_of_its_task_and_a_cancel_reaches_it(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    async with fleet.http() as http:
        client = TaskClient(http)
        task = await client.start("sleep", file=str(tmp_path / "ran"))
        with anyio.fail_after(10):
            while "half" not in (await client.get(task)).get("statusMessage", ""):
                await pause()
        await client.cancel(task)
        assert (await client.until(task))["status"] == "cancelled"
        with anyio.fail_after(5):
            while not json.loads((await call(fleet, "cancelled", {}))["result"]["content"][0]["text"]):
                await pause()


@pytest.mark.rule("B3")
async def test_an_error_of_a_source_ends_its_task_with_a_code_that_clients_may_get(fleet: LocalFleet) -> None:
    async with fleet.http() as http:
        client = TaskClient(http)
        own = await client.until(await client.start("fail", error={"code": 7, "message": "own", "data": [1]}))
        taken = await client.until(await client.start("fail", error={"code": -32022, "message": "version"}))
    assert (own["status"], own["error"]) == ("failed", {"code": 7, "message": "own", "data": [1]})
    assert taken["error"] == {
        "code": -32603, "message": "version", "data": {"upstream": {"code": -32022, "message": "version"}},
    }  # fmt: skip


@pytest.mark.rule("B7")
async def test_a_task_whose_source_dies_ends_uncertain(fleet: LocalFleet) -> None:
    async with fleet.http() as http:
        client = TaskClient(http)
        lost = await client.until(await client.start("die"))
    assert lost["result"]["isError"] is True
    assert "The outcome is uncertain" in text_of(lost)


@pytest.mark.rule("B8")
async def test_a_task_whose_worker_dies_is_not_sent_to_its_source_again(tmp_path: Path) -> None:
    file = tmp_path / "ran"
    async with hosted_fleet(slow(), factor=10) as fleet, fleet.http() as http:
        client = TaskClient(http)
        task = await client.start("sleep", file=str(file))
        await until_ran(file)
        await fleet.workers[0].kill()
        await fleet.add_worker()
        lost = await client.until(task)
    assert lost["result"]["isError"] is True
    assert "The outcome is uncertain" in text_of(lost)
    assert file.read_text() == "ran\n"
