"""`mcpfleet tasks start`, `answer` and `watch`: a task from its beginning to its end, by commands alone."""

from __future__ import annotations

from pathlib import Path

import anyio.to_thread
import httpx2
from typer.testing import CliRunner, Result

from mcpfleet.cli.commands.group import app
from mcpfleet.cli.typed_arguments import WrongArguments
from mcpfleet.testing.fleet import Fleet
from tests.kit.tasks import TaskClient

APP = Path(__file__).with_name("traced_app.py")


async def command(*words: str) -> Result:
    """Run `mcpfleet tasks …` as its own loop, as the command is."""
    return await anyio.to_thread.run_sync(lambda: CliRunner().invoke(app, ["tasks", *words]))


async def test_a_task_is_started_at_one_edge_answered_at_another_and_watched_to_its_end() -> None:
    async with Fleet(APP, edges=2) as fleet, httpx2.AsyncClient() as http:
        one, other = fleet.urls
        started = await command("start", one, "wait")
        task = started.stdout.strip()
        assert (started.exit_code, len(task.split())) == (0, 1), started.output
        await TaskClient(http, one).until(task, "input_required")
        shown = await command("get", other, task)
        assert "waits for: floor" in shown.stdout
        assert "Which floor?" in shown.stdout
        answered = await command("answer", other, task, "floor", "number=3")
        assert answered.exit_code == 0, answered.output
        ended = await command("watch", one, task)
        assert (ended.exit_code, "floor 3" in ended.stdout) == (0, True), ended.output
        declined = (await command("start", one, "wait")).stdout.strip()
        await TaskClient(http, one).until(declined, "input_required")
        await command("answer", one, declined, "floor", "--decline")
        assert (await command("watch", one, declined)).exit_code == 1
        inline = await command("start", one, "tell")
        assert (inline.exit_code, "told" in inline.stdout) == (0, True), inline.output
        refused = await command("start", one, "wait", "floor")
        assert isinstance(refused.exception, WrongArguments)
