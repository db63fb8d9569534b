"""The owner of tasks that callbacks start."""

from __future__ import annotations

import anyio
import pytest

from mcpfleet.process.task_owner import TaskOwner

pytestmark = pytest.mark.usefixtures("jumping")


async def test_a_task_runs_until_it_ends_or_its_owner_is_cancelled() -> None:
    ended: list[str] = []
    owner = TaskOwner()

    async def work(name: str, seconds: float) -> None:
        try:
            await anyio.sleep(seconds)
        except BaseException:
            ended.append(f"{name} cancelled")
            raise
        ended.append(name)

    async with anyio.create_task_group() as tasks:
        await tasks.start(owner.run)
        assert owner.start(work, "short", 0)
        assert owner.start(work, "long", seconds=60)
        await anyio.wait_all_tasks_blocked()
        assert ended == ["short"]
        tasks.cancel_scope.cancel()
    assert ended == ["short", "long cancelled"]


async def test_nothing_starts_before_the_owner_runs_or_after_it_ended() -> None:
    owner = TaskOwner()
    states = [owner.is_running, owner.start(anyio.sleep, 0)]
    async with anyio.create_task_group() as tasks:
        await tasks.start(owner.run)
        states += [owner.is_running, owner.start(anyio.sleep, 0)]
        tasks.cancel_scope.cancel()
    states += [owner.is_running, owner.start(anyio.sleep, 0)]
    assert states == [False, False, True, True, False, False]


async def test_an_error_of_a_task_ends_the_owner_which_raises_it() -> None:
    owner = TaskOwner()

    async def fail() -> None:
        raise ValueError("broken")

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            await tasks.start(owner.run)
            owner.start(fail)

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert caught.group_contains(ValueError)
