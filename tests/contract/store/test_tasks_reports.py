"""Reports of tasks and of their holders, on both databases: how far they are, and which are lost."""

from __future__ import annotations

import pytest

from mcpfleet.contracts.pool_tasks import Ask, QuestionsAsked, Release, Settle, Step, Stepped, step_key
from mcpfleet.contracts.tasks import Status
from mcpfleet.store.engine import Store
from tests.contract.store.task_harness import DONE, POOL, column, question, task_harness


@pytest.mark.rule("K25")
@pytest.mark.parametrize("how", ["settle", "release", "ask"])
async def test_what_a_holder_let_go_itself_is_not_lost(store: Store, how: str) -> None:
    """A renewal that crosses it is told so; once somebody else has the task, it is lost to the old fence."""
    async with task_harness(store) as books:
        task = await books.running()
        match how:
            case "settle":
                assert await books.settle(task)
            case "release":
                await books.release(task)
            case "ask":
                await books.ask(task, "month")
        extended = await books.extend(task)
        assert (extended.ended, extended.lost) == ((task.id,), ())
        if how == "release":
            await books.release(task)  # its answer was lost
            await books.taken("w2")
            extended = await books.extend(task)
            assert (extended.ended, extended.lost) == ((), (task.id,))


@pytest.mark.rule("K25")
@pytest.mark.parametrize("how", ["settle", "release"])
@pytest.mark.parametrize("late", ["step", "ask"])
async def test_a_write_that_crosses_its_holders_own_end_is_no_loss(store: Store, how: str, late: str) -> None:
    """A thread is at a step, or asks, when its run is cancelled; once somebody else has the task, it is a loss."""
    async with task_harness(store) as books:
        task = await books.running()

        async def write() -> Stepped | QuestionsAsked:
            if late == "ask":
                return await books.ask(task, "month")
            wanted = Step(id=task.id, fence=task.fence, key=step_key(task.id, "late", "", 0), name="late", result="1")
            return await books.repository.steps.remember(POOL, wanted)

        await (books.settle(task) if how == "settle" else books.release(task))
        told = await write()
        assert (told.lost, told.ended) == (True, True)
        if how == "release":
            await books.taken("w2")
            told = await write()
            assert (told.lost, told.ended) == (True, False)


@pytest.mark.rule("K25")
async def test_a_release_that_is_asked_again_is_not_lost(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        wanted = Release(id=task.id, fence=task.fence)
        for _ in range(2):
            released, _ = await books.repository.claims.release(POOL, wanted)
            assert not released.lost
        await books.taken("w2")
        released, _ = await books.repository.claims.release(POOL, wanted)
        assert released.lost


@pytest.mark.rule("K27")
async def test_what_a_task_says_is_reached_never_falls(store: Store) -> None:
    """By whichever holder, and in whatever order the reports come."""
    async with task_harness(store) as books:
        first = await books.running()
        await books.extend(first, message="7 of 10", progress=7.0)
        await books.extend(first, message="5 of 10", progress=5.0)
        assert (await books.seen(first.id)).message == "7 of 10"
        await books.release(first)
        again = await books.taken("w2")
        before = (await books.seen(first.id)).version
        for number in range(8):
            await books.extend(again, message=f"{number} of 20", progress=float(number))
        seen = await books.seen(first.id)
        assert (seen.message, seen.version) == ("7 of 10", before), "nothing that a reader sees has changed"
        await books.extend(again, message="8 of 20", progress=8.0)
        assert (await books.seen(first.id)).message == "8 of 20"
        await books.extend(again, message="by an older worker")
        assert (await books.seen(first.id)).message == "by an older worker"


@pytest.mark.rule("K27")
@pytest.mark.parametrize(("reached", "message"), [(9.0, "9 of 10"), (7.0, "8 of 10"), (8.0, "8 of 10")])
async def test_an_end_shows_the_highest_that_was_reported(store: Store, reached: float, message: str) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        await books.extend(task, message="8 of 10", progress=8.0)
        wanted = Settle(
            id=task.id,
            fence=task.fence,
            status=Status.COMPLETED,
            end=DONE,
            message=f"{reached:g} of 10",
            progress=reached,
        )
        await books.repository.completer.settle(POOL, wanted)
        assert (await books.seen(task.id)).message == message
        assert await column(store, task.id, "progress") == max(reached, 8.0)


@pytest.mark.rule("K27")
async def test_a_failure_says_why_whatever_was_reached(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        await books.extend(task, message="8 of 10", progress=8.0)
        failed = Settle(id=task.id, fence=task.fence, status=Status.FAILED, end='{"code":-1}', message="no paper")
        await books.repository.completer.settle(POOL, failed)
        assert (await books.seen(task.id)).message == "no paper"


@pytest.mark.rule("K27")
async def test_a_question_shows_what_was_reached_before_it(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        wanted = Ask(id=task.id, fence=task.fence, questions=(question("month"),), message="3 of 10", progress=3.0)
        await books.repository.inputs.ask(POOL, wanted)
        seen = await books.seen(task.id)
        assert (seen.status, seen.message) == (Status.INPUT_REQUIRED, "3 of 10")
