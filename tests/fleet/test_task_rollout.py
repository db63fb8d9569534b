"""A rollout in the middle of tasks: each ends by the newer version of its tool, or says why it cannot (K21)."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcpfleet.testing.fleet import Fleet
from tests.fleet.test_tasks import Notes
from tests.kit.tasks import TaskClient, text_of
from tests.kit.waiting import until

APPLICATION = """
import os
from pathlib import Path

import anyio
from pydantic import BaseModel

from mcpfleet.app import App, Context, TryAgain

app = App("works", version="VERSION")
NOTES = Path(os.environ["TASKS_NOTES"])


class Agreed(BaseModel):
    yes: bool


def note(what):
    with NOTES.open("a") as notes:
        notes.write(f"{what} {os.getpid()}\\n")


def loaded(part: str) -> str:
    note(f"step {part}")
    return part


async def is_newer() -> None:
    note("runs VERSION")
    if "VERSION" == "1":
        await anyio.sleep_forever()


@app.tool(task="required", description="Runs, as of VERSION.")
async def run(ctx: Context) -> str:
    await ctx.step("load", loaded, "run")
    await is_newer()
    return "VERSION"


@app.tool(task="required", asks={"elicitation.form"}, description="Asks, as of VERSION.")
async def ask(ctx: Context) -> str:
    await ctx.step("load", loaded, "ask")
    answer = await ctx.elicit("Go on?", Agreed, key="go")
    return f"VERSION {answer.yes}"


@app.tool(task="required", description="Tries again, as of VERSION.")
async def retry() -> str:
    note("retry VERSION")
    if "VERSION" == "1":
        raise TryAgain("not yet", after=1.0)
    return "VERSION"


@app.tool(task="required", asks={"elicitation.form"}, description="Asks otherwise, as of VERSION.")
async def reword(ctx: Context) -> str:
    answer = await ctx.elicit("Go on, in VERSION?", Agreed, key="go")
    return f"VERSION {answer.yes}"


@app.tool(task="required")
async def rename(ARGUMENT: int) -> str:
    await is_newer()
    return "VERSION"
"""
REMOVED = """

@app.tool(task="required")
async def remove() -> str:
    await is_newer()
    return "VERSION"
"""
SOON = {"MCPFLEET_TASK_GONE": "1.5", "MCPFLEET_TASK_SERVES": "0.4", "MCPFLEET_TASK_REMOVED": "4"}


def version(folder: Path, number: str, argument: str, more: str = "") -> Path:
    path = folder / f"version_{number}.py"
    path.write_text((APPLICATION + more).replace("VERSION", number).replace("ARGUMENT", argument))
    return path


@pytest.mark.rule("K21")
async def test_a_rollout_in_the_middle_of_tasks_ends_each_rightly_or_says_why(tmp_path: Path) -> None:
    """Tasks that run, wait for their client, or are between two attempts; a tool that changed, and one that went.

    Steps are not done again, an answer counts, and nobody is asked again.
    """
    notes = Notes(tmp_path / "notes")
    environment = {"TASKS_NOTES": str(tmp_path / "notes"), **SOON}
    old, new = version(tmp_path, "1", "first", REMOVED), version(tmp_path, "2", "second")
    async with Fleet(old, environment=environment) as fleet, httpx2.AsyncClient() as http:
        client = TaskClient(http, fleet.urls[0])
        started: dict[str, dict[str, Any]] = {
            "run": {}, "remove": {}, "rename": {"first": 1}, "ask": {}, "reword": {}, "retry": {},
        }  # fmt: skip
        tasks = {tool: await client.start(tool, **arguments) for tool, arguments in started.items()}
        await until(lambda: len(notes.of("runs 1")) == 3 and notes.of("retry 1"))
        for tool in ("ask", "reword"):
            await client.until(tasks[tool], "input_required")
        await fleet.add_worker(new)
        fleet.workers[0].signal(signal.SIGTERM)
        await until(lambda: not fleet.workers[0].is_running, within=20)
        # It is answered while nobody has its version; what was asked before the rollout is not asked again.
        for tool in ("ask", "reword"):
            assert list((await client.until(tasks[tool], "input_required"))["inputRequests"]) == ["go"]
            await client.update(tasks[tool], go={"yes": True})
        ended = {tool: await client.until(task) for tool, task in tasks.items()}
    assert [text_of(ended[tool]) for tool in ("run", "ask", "retry")] == ["2", "2 True", "2"]
    assert [len(notes.of(f"step {tool}")) for tool in ("run", "ask")] == [1, 1]
    for tool, why in (("rename", "second"), ("reword", "differs from an earlier attempt")):
        assert (ended[tool]["status"], ended[tool]["result"]["isError"]) == ("completed", True), tool
        assert "The tool has changed since this task was made" in text_of(ended[tool])
        assert why in text_of(ended[tool])
    assert ended["remove"]["status"] == "failed"
    assert "no longer have its tool" in ended["remove"]["error"]["message"]
    assert "no longer have its tool" in ended["remove"]["statusMessage"]
