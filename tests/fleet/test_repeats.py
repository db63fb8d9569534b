"""Connections that are cut after the effect, and the calls that are sent again: one effect where there is a key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from mcpfleet.testing.fleet import Fleet
from mcpfleet.wire.protocol import IDEMPOTENCY_KEY, REPEAT
from tests.fleet.test_tasks import Notes
from tests.kit.tasks import TaskClient, text_of
from tests.kit.waiting import until

APP = Path(__file__).with_name("keyed_app.py")


@asynccontextmanager
async def fleet(folder: Path, **options: Any) -> AsyncIterator[tuple[Fleet, list[TaskClient], Notes]]:
    notes = Notes(folder / "notes")
    environment = {"KEYED_NOTES": str(folder / "notes"), "MCPFLEET_SLOTS": "2"}
    async with (
        Fleet(APP, edges=2, environment=environment, **options) as running,
        httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None)) as http,
    ):
        yield running, [TaskClient(http, url) for url in running.urls], notes


def said(result: dict[str, Any]) -> str:
    return text_of({"result": result})


async def cut(client: TaskClient, notes: Notes, effect: str, tool: str, arguments: dict[str, Any], **said: Any) -> None:
    """Call a tool, and close the connection once it has had its effect."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: client.call(tool, arguments, **said))
        await until(lambda: bool(notes.of(effect)))
        tasks.cancel_scope.cancel()


KEYED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("place", {"book": 1, "request": "r1"}, {}, "r1 1"),
    ("remove", {"book": 1}, {"_meta": {IDEMPOTENCY_KEY: "k1"}}, "remove 1"),
]
"""Tools, arguments, what is said beside them, and the effect: a key among the arguments, and one apart."""


@pytest.mark.rule("I1", "I2")
async def test_a_hundred_retries_of_a_call_that_was_cut_have_one_effect(
    tmp_path: Path,
) -> None:
    results: list[dict[str, Any]] = []

    async with fleet(tmp_path) as (_, clients, notes):
        for tool, arguments, beside, effect in KEYED:
            (tmp_path / "gate").unlink(missing_ok=True)
            results.clear()

            async def retry(client: TaskClient, tool: str = tool, beside: Any = (arguments, beside)) -> None:
                results.append(await client.call(tool, beside[0], **beside[1]))

            await cut(clients[0], notes, effect, tool, arguments, **beside)
            async with anyio.create_task_group() as tasks:
                for number in range(100):
                    tasks.start_soon(retry, clients[number % 2])
                # The first takes one of two slots, and a hundred retries take none.
                assert [said(await client.call("ping")) for client in clients] == ["pong", "pong"]
                assert results == []
                (tmp_path / "gate").touch()
            assert len(notes.of(effect)) == 1
            assert {said(result) for result in results} == {f"done: {effect}"}
            assert all(result["_meta"][REPEAT] is True for result in results)
            assert len(results) == 100


@pytest.mark.rule("I1")
async def test_a_retry_after_the_death_of_its_edge_gets_the_first_result_at_another(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (running, [one, two], notes):
        arguments = {"book": 1, "request": "r1"}
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                with pytest.raises(httpx2.HTTPError):
                    await one.call("place", arguments)

            tasks.start_soon(call)
            await until(lambda: bool(notes.of("r1 1")))
            await running.edges[0].kill()
        (tmp_path / "gate").touch()
        again = await two.call("place", arguments)
        assert (said(again), again["_meta"][REPEAT]) == ("done: r1 1", True)
        assert len(notes.of("r1 1")) == 1
