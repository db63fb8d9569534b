"""Tasks that outlive the processes which run them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest
from typer.testing import CliRunner, Result

from mcpfleet.cli.commands.group import app
from mcpfleet.cli.operate_tasks import list_tasks, stop_task
from mcpfleet.contracts.operator_tasks import ListTasks, Why
from mcpfleet.testing.fleet import Fleet
from tests.kit.tasks import TaskClient, text_of
from tests.kit.waiting import until

APP = Path(__file__).with_name("tasks_app.py")
LEASE = 3.0
"""Seconds after which a task is another worker's; 10 by default."""
SHORT = {"MCPFLEET_TASK_LEASE": str(LEASE), "MCPFLEET_TASK_EXTENDS": "0.8", "MCPFLEET_TASKS_SWEEP": "0.3"}


class Notes:
    """The handlers' notes: each line's words, and the process."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._path = path

    def of(self, what: str) -> list[int]:
        """The processes that noted it, in order."""
        lines = [line.rpartition(" ") for line in self._path.read_text().splitlines()]
        return [int(process) for said, _, process in lines if said == what]


@asynccontextmanager
async def fleet(folder: Path, *, edges: int = 1) -> AsyncIterator[tuple[Fleet, list[TaskClient], Notes]]:
    """A fleet with two workers, a client at each edge, and the notes."""
    notes = Notes(folder / "notes")
    environment = {"TASKS_NOTES": str(folder / "notes"), **SHORT}
    async with (
        Fleet(APP, edges=edges, workers=2, environment=environment) as running,
        httpx2.AsyncClient() as http,
    ):
        yield running, [TaskClient(http, url) for url in running.urls], notes


@pytest.mark.rule("D8")
async def test_a_killed_workers_task_is_completed_by_another_in_time(tmp_path: Path) -> None:
    """D8: its lease and its own time; its step is remembered, and not done again."""
    async with fleet(tmp_path) as (running, [client], notes):
        task = await client.start("work", seconds=3.0)
        await until(lambda: notes.of("step a"), within=10)
        await client.until(task, "working")
        while "statusMessage" not in await client.get(task):
            pass
        [victim] = [worker for worker in running.workers if worker.pid == notes.of("run")[0]]
        killed = time.monotonic()
        await victim.kill()
        done = await client.until(task, within=30)
        taken = time.monotonic() - killed
    assert text_of(done) == "A done"
    assert taken < LEASE + 5 + 3
    assert len(set(notes.of("run"))) == 2
    assert len(notes.of("step a")) == 1, "what a step gave is kept"


@pytest.mark.rule("K21")
async def test_a_task_that_waits_for_input_survives_all_workers_and_services(tmp_path: Path) -> None:
    """The answer counts, is not asked again, and arrives once; a handle is read and answered at any edge."""
    async with fleet(tmp_path, edges=2) as (running, [one, two], notes):
        task = await one.start("ask")
        await one.until(task, "input_required")
        for worker in running.workers:
            await worker.kill()
        await running.restart(running.services, drain=False)
        with_answer = await two.until(task, "input_required")
        assert list(with_answer["inputRequests"]) == ["go"]
        await two.update(task, go={"yes": True})
        assert (await one.get(task))["status"] == "working"
        await running.add_worker(APP)
        done = await one.until(task, within=15)
    assert text_of(done) == "A True"
    assert len(notes.of("run")) == 2
    assert len(notes.of("step a")) == 1


async def test_a_worker_paused_past_its_lease_is_refused_and_told(tmp_path: Path) -> None:
    """Another one completes the task; what the first one says of it when it wakes changes nothing (K7)."""
    async with fleet(tmp_path) as (running, [client], notes):
        task = await client.start("work", seconds=1.0)
        await until(lambda: notes.of("step a"), within=10)
        [victim] = [worker for worker in running.workers if worker.pid == notes.of("run")[0]]
        running.pause(victim)
        done = await client.until(task, within=25)
        running.resume(victim)
        await until(lambda: "task lost" in running.logs() or "task end refused" in running.logs(), within=10)
        after = await client.get(task)
    assert text_of(done) == "A done"
    assert after == done


async def test_people_start_answer_watch_and_cancel_tasks_and_operators_list_and_stop_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command takes what the one before printed."""
    async with fleet(tmp_path) as (running, [client], _):
        url, operator = running.urls[0], running.nats_settings("operator")

        async def run(*words: str) -> Result:
            return await anyio.to_thread.run_sync(lambda: CliRunner().invoke(app, ["tasks", *words]))

        started = await run("start", url, "ask")
        task = started.stdout.strip()
        await client.until(task, "input_required")
        assert await list_tasks(operator, ListTasks(why=Why.WAITING)) == 0
        assert task in capsys.readouterr().out
        shown = await run("get", url, task)
        assert (shown.exit_code, "waits for: go" in shown.stdout) == (0, True)
        refused = await run("answer", url, task, "go", "yes=perhaps")
        assert str(refused.exception).startswith("yes: "), "the wrong field is named before anything is sent"
        assert (await run("answer", url, task, "go", "yes=true")).exit_code == 0
        watched = await run("watch", url, task)
        assert watched.exit_code == 0
        assert watched.stdout.count("completed") == 1, "the last state is told once"
        assert "A True" in watched.stdout
        other = (await run("start", url, "work", "seconds=60")).stdout.strip()
        assert (await run("cancel", url, other)).exit_code == 0, "the wish was taken"
        await client.until(other)
        stuck = (await run("start", url, "work", "seconds=60")).stdout.strip()
        assert await stop_task(operator, stuck) == 0
        assert (await client.get(stuck))["statusMessage"] == "An operator has ended the task."
        lacking = await run("start", url, "nothing")
        assert (lacking.exit_code, "unknown tool" in lacking.stderr) == (1, True)
