"""Clients hear of changes while the store refuses: not made where that is certain, and doubt nowhere else."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.tasks_app import Works
from tests.kit.postgres import Postgres
from tests.kit.proxy import TcpProxy, once, proxied
from tests.kit.tasks import TaskClient

CALL: Any = {"name": "double", "arguments": {"number": 21}}


@pytest.mark.rule("K24")
async def test_a_task_that_the_store_refused_is_told_as_not_made(postgres: Postgres) -> None:
    works = Works()
    async with postgres.migrated() as url:
        async with LocalFleet(works.app, environment={"MCPFLEET_STORE_URL": url}) as fleet, fleet.http() as http:
            client = TaskClient(http)
            held = await client.start("hold")
            await postgres.shut(url)
            made = await client.post("tools/call", CALL)
            await postgres.open(url)
            works.release.set()
            await client.until(held)
            done = await client.until((await client.call("double", {"number": 21}))["taskId"])
        assert made.status_code == 504
        assert "nothing was run" in made.json()["error"]["message"]
        assert done["status"] == "completed"
        assert works.runs == ["hold", "double"]


@pytest.mark.rule("K24")
@pytest.mark.parametrize("lost", ["forth", "back"])
async def test_a_task_whose_commit_had_no_answer_may_have_been_made(postgres: Postgres, lost: str) -> None:
    works = Works()
    async with postgres.migrated() as url, proxied(url) as way:
        async with LocalFleet(works.app, environment={"MCPFLEET_STORE_URL": way.url}) as fleet, fleet.http() as http:
            client = TaskClient(http)
            await client.until(await client.start("double", number=1))
            _cut_making(way, lost)
            answer = (await client.post("tools/call", CALL)).json()
            assert way.cuts == 1
        assert answer["result"]["isError"] is True
        assert "may have been made" in answer["result"]["content"][0]["text"]


def _cut_making(way: TcpProxy, lost: str) -> None:
    """Lose the statement that makes a task after it has left, or its answer."""
    setattr(way, lost, once(b'"number":21' if lost == "forth" else b"INSERT 0 1"))


@pytest.mark.rule("K24")
async def test_a_task_that_waited_in_vain_for_a_connection_is_told_as_not_made(postgres: Postgres) -> None:
    """An address that takes connections and says nothing: the time is over before anything was sent."""
    works = Works()
    async with postgres.migrated() as url, proxied(url) as way:
        environment = {"MCPFLEET_STORE_URL": way.url, "MCPFLEET_STORE_CONNECT_TIMEOUT": "0.8"}
        async with LocalFleet(works.app, environment=environment) as fleet, fleet.http() as http:
            way.freeze()
            way.abort()
            answer = await TaskClient(http).post("tools/call", CALL)
            way.heal()
            way.abort()
        assert answer.status_code == 504
        assert "nothing was run" in answer.json()["error"]["message"]
        assert works.runs == []


@asynccontextmanager
async def locked(url: str) -> AsyncIterator[None]:
    """Hold a lock that no task can be made beside, as an operator's tool may, for the length of a block."""
    if url.startswith("sqlite"):
        other = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        yield
        other.close()
        return
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        await connection.execute("LOCK TABLE tasks_states IN SHARE MODE")
        yield
    await connection.close()


@pytest.mark.rule("K30")
async def test_tasks_that_a_lock_kept_from_being_made_are_told_as_not_made(url: str) -> None:
    """All of them, in batches too, while the lock lasts longer than anybody waits; and none is made after it."""
    works = Works()
    async with LocalFleet(works.app, environment={"MCPFLEET_STORE_URL": url}) as fleet, fleet.http() as http:
        client = TaskClient(http)
        answers = []

        async def call(number: int) -> None:
            answers.append(await client.post("tools/call", {"name": "double", "arguments": {"number": number}}))

        async with locked(url), anyio.create_task_group() as calls:
            for number in range(12):
                calls.start_soon(call, number)
                await anyio.sleep(0.1)
        assert [answer.status_code for answer in answers] == [504] * 12
        assert all("nothing was run" in answer.json()["error"]["message"] for answer in answers)
        await client.until((await client.call("double", {"number": 21}))["taskId"])
        assert works.runs == ["double"]
