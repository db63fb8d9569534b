"""How far a task says that it is, over its attempts and workers (K27)."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest

from mcpfleet.app import App, Context, TryAgain
from mcpfleet.testing.local import LocalFleet
from tests.kit.tasks import TaskClient
from tests.kit.waiting import until

QUICK = {"MCPFLEET_TASK_SAYS": "0.05", "MCPFLEET_TASK_EXTENDS": "0.2", "MCPFLEET_TASK_BACKOFF": "0.1"}


class Climb:
    """A task whose first two attempts end on the way."""

    def __init__(self) -> None:
        self.attempts = 0
        self.steps: list[anyio.Event] = [anyio.Event() for _ in range(3)]
        self.app = App("climb", version="1")
        self.app.tool(task="required")(self.climb)

    async def climb(self, ctx: Context) -> str:
        attempt = self.attempts
        self.attempts += 1
        for value in (range(8), range(4), range(11))[attempt]:
            await ctx.progress(value, total=10, message=f"attempt {attempt}")
        await until(self.steps[attempt].is_set, within=20)
        if attempt < 2:
            raise TryAgain("not yet")
        return "up"


def reached(task: dict[str, Any]) -> float:
    found = re.search(r"\((\S+) of 10\)", task.get("statusMessage", "(-1 of 10)"))
    assert found is not None, task
    return float(found[1])


@pytest.mark.rule("K27")
async def test_a_task_that_runs_again_never_says_less_than_before() -> None:
    climb = Climb()
    async with LocalFleet(climb.app, workers=2, environment=QUICK) as fleet, fleet.http() as http:
        client = TaskClient(http)
        task = await client.start("climb")
        seen: list[float] = []

        async def says(least: float) -> None:
            with anyio.fail_after(10):
                while not seen or seen[-1] < least:
                    seen.append(reached(await client.get(task)))
                    await anyio.sleep(0.02)

        await says(7)
        climb.steps[0].set()
        await until(lambda: climb.attempts == 2, within=10)
        for _ in range(20):  # its reports are written within 0.05 s
            seen.append(reached(await client.get(task)))
            await anyio.sleep(0.02)
        climb.steps[1].set()
        climb.steps[2].set()
        done = await client.until(task)
    assert seen == sorted(seen)
    assert done["statusMessage"] == "attempt 2 (10 of 10)", "its last report was not written by itself"
