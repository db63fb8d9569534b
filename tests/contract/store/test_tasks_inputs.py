"""Questions, answers and steps of tasks, on both databases."""

from __future__ import annotations

import anyio
import pytest

from mcpfleet.bus.errors import Failed
from mcpfleet.contracts.manifest import digest_of
from mcpfleet.contracts.pool_tasks import Ask, Claimed, Step, Stepped, step_key
from mcpfleet.contracts.tasks import Status, Update
from mcpfleet.store.engine import Store
from mcpfleet.tasks.tables import states
from tests.contract.store.task_harness import (
    DONE,
    OWNER,
    POOL,
    REPORT,
    TaskHarness,
    age,
    question,
    replicas,
    task_harness,
)

JUNE = '{"action":"accept","content":{"month":"June"}}'


@pytest.mark.rule("M70")
async def test_a_question_waits_for_its_client_and_its_answer_goes_to_the_next_holder(store: Store) -> None:
    async with task_harness(store) as books:
        first = await books.running()
        asked = await books.ask(first, "month")
        assert (asked.waiting, asked.answers) == (True, ())
        view = await books.seen(first.id)
        assert (view.status, view.requests) == (Status.INPUT_REQUIRED, {"month": question("month").request})
        assert (await books.claim()).tasks == (), "it holds no worker's slot"
        assert (await books.update(first.id, {"month": JUNE})).consumed == ("month",)
        view = await books.seen(first.id)
        assert (view.status, view.requests) == (Status.WORKING, {})
        second = await books.taken("w2")
        assert [(each.key, each.digest, each.answer) for each in second.answers] == [
            ("month", question("month").digest, JUNE)
        ]
        again = await books.ask(second, "month")
        assert (again.waiting, [each.answer for each in again.answers]) == (False, [JUNE])
        assert await books.settle(second)


@pytest.mark.rule("K9")
async def test_part_of_the_answers_leaves_the_rest_outstanding(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        await books.ask(task, "name", "confirm")
        before = await books.seen(task.id)
        assert (await books.update(task.id, {"name": '"x"', "unknown-key": "{}"})).consumed == ("name",)
        view = await books.seen(task.id)
        assert (view.status, list(view.requests)) == (Status.INPUT_REQUIRED, ["confirm"])
        assert view.version > before.version
        assert (await books.update(task.id, {"confirm": "true"})).consumed == ("confirm",)
        taken = await books.taken()
        assert [(each.key, each.answer) for each in taken.answers] == [("name", '"x"'), ("confirm", "true")]


@pytest.mark.rule("K9")
async def test_an_answer_counts_once(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        await books.ask(task, "a", "b")
        assert (await books.update(task.id, {"a": "1"})).consumed == ("a",)
        again = await books.update(task.id, {"a": "2"})
        assert (again.known, again.consumed) == (True, ())
        await books.update(task.id, {"b": "3"})
        assert [each.answer for each in (await books.taken()).answers] == ["1", "3"]


@pytest.mark.rule("K9")
async def test_of_answers_that_arrive_at_once_one_counts(url: str, store: Store) -> None:
    async with replicas(url, 3) as harnesses:
        task = await harnesses[0].running()
        await harnesses[0].ask(task, "a", "b")
        consumed: list[str] = []

        async def answer(number: int) -> None:
            key = "ab"[number % 2]
            consumed.extend((await harnesses[number % 3].update(task.id, {key: str(number)})).consumed)

        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(answer, number)
        assert sorted(consumed) == ["a", "b"]
        assert len((await harnesses[0].taken()).answers) == 2


@pytest.mark.rule("M67")
async def test_an_update_of_a_task_that_has_ended_or_asks_nothing_is_acknowledged(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        assert (await books.update(task.id, {"a": "1"})).known
        await books.settle(task)
        updated = await books.update(task.id, {"a": "1"})
        assert (updated.known, updated.consumed) == (True, ())


@pytest.mark.rule("M70")
async def test_a_key_never_means_another_question(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        await books.ask(task, "month")
        await books.update(task.id, {"month": JUNE})
        task = await books.taken()
        other = Ask(id=task.id, fence=task.fence, questions=(question("new"), question("month", about="?")))
        asked, changes = await books.repository.inputs.ask(POOL, other)
        assert (asked.clash, changes) == ("month", [])
        assert (await books.seen(task.id)).status is Status.WORKING, "nothing was asked"


async def test_a_question_that_is_asked_again_after_its_answer_was_lost_is_one_question(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        assert (await books.ask(task, "month")).waiting
        version = (await books.seen(task.id)).version
        assert (await books.ask(task, "month")).waiting
        assert (await books.seen(task.id)).version == version


async def test_a_holder_that_asked_holds_the_task_no_more(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        await books.ask(task, "month")
        assert not await books.settle(task)
        assert (await books.extend(task)).ended == (task.id,)


async def test_a_task_that_waits_survives_the_death_of_every_worker_and_its_question(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        await books.ask(task, "month")
        await age(store, states, "updated_at", 5000)
        assert await books.lapse() == 0
        reborn = TaskHarness(store)
        await reborn.repository.open()
        assert (await reborn.update(task.id, {"month": JUNE})).consumed == ("month",)
        taken = await reborn.taken("new")
        assert (taken.attempts, len(taken.answers)) == (0, 1)


async def test_a_holder_may_keep_its_lease_and_wait_in_place(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        assert (await books.ask(task, "a", "b", keep=True)).waiting
        assert (await books.seen(task.id)).status is Status.INPUT_REQUIRED
        await books.update(task.id, {"a": "1"})
        assert (await books.extend(task, waits=True)).answers == {}
        _, (change,) = await books.repository.inputs.update(update(task, {"b": "2"}))
        assert (change.notify, change.ready) == ((POOL, "w1"), None)
        answers = (await books.extend(task, waits=True)).answers[task.id]
        assert [each.answer for each in answers] == ["1", "2"]
        assert (await books.seen(task.id)).status is Status.WORKING
        assert (await books.claim()).tasks == ()
        assert await books.settle(task)


def update(task: Claimed, answers: dict[str, str]) -> Update:
    return Update(id=task.id, binding=OWNER, answers=answers)


async def test_a_holder_that_vanishes_while_it_waits_is_not_held_against_the_task(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        await books.ask(task, "month", keep=True)
        for _ in range(2):
            await books.lapse()
        view = await books.seen(task.id)
        assert view.status is Status.INPUT_REQUIRED
        assert not await books.settle(task)
        _, (change,) = await books.repository.inputs.update(update(task, {"month": JUNE}))
        assert change.ready == (POOL, REPORT)
        assert (await books.taken()).attempts == 0


async def test_a_task_may_end_while_it_asks(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        await books.ask(task, "month", keep=True)
        assert await books.settle(task)
        view = await books.seen(task.id)
        assert (view.status, view.requests, view.end) == (Status.COMPLETED, {}, DONE)


@pytest.mark.rule("K10")
async def test_the_cancel_of_a_task_that_waits_ends_it(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        await books.ask(task, "month")
        await books.cancel(task.id)
        assert (await books.seen(task.id)).status is Status.CANCELLED
        assert (await books.update(task.id, {"month": JUNE})).consumed == ()


async def test_the_run_limit_stands_still_while_a_task_waits_and_waiting_has_its_own(store: Store) -> None:
    async with task_harness(store, task_input_wait=500) as books:
        task = await books.running(run_limit=60)
        await age(store, states, "until", 20)
        await books.ask(task, "month")
        await age(store, states, "until", 450)
        assert await books.repository.sweeps.end_overdue() == []
        await books.update(task.id, {"month": JUNE})
        task = await books.taken()
        assert 35 < task.limit <= 40
        await books.ask(task, "other")
        await age(store, states, "until", 501)
        await books.repository.sweeps.end_overdue()
        view = await books.seen(task.id)
        assert view.status is Status.FAILED
        assert "not answered in time" in str(view.end)


async def test_answers_and_questions_are_bounded(store: Store) -> None:
    async with task_harness(store, task_memory_limit=2000, task_questions=2) as books:
        task = await books.running()
        with pytest.raises(Failed, match="MCPFLEET_TASK_QUESTIONS"):
            await books.ask(task, "a", "b", "c")
        await books.ask(task, "a", "b")
        with pytest.raises(Failed, match="MCPFLEET_TASK_MEMORY_LIMIT"):
            await books.update(task.id, {"a": "1", "b": f'"{"x" * 3000}"'})
        view = await books.seen(task.id)
        assert list(view.requests) == ["a", "b"], "nothing of that update was taken"


# -- steps ------------------------------------------------------------------------------------------------------------


async def step(
    books: TaskHarness, task: Claimed, name: str, result: str, *, arguments: str = "[]", ordinal: int = 0
) -> Stepped:
    key = step_key(task.id, name, digest_of(arguments.encode()), ordinal)
    return await books.repository.steps.remember(
        POOL, Step(id=task.id, fence=task.fence, key=key, name=name, result=result)
    )


async def test_a_step_is_remembered_for_the_next_attempt(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        assert (await step(books, task, "load", '{"rows": 3}')).result is None
        await books.lapse()
        taken = await books.taken("w2")
        key = step_key(task.id, "load", digest_of(b"[]"), 0)
        assert [(each.key, each.result) for each in taken.steps] == [(key, '{"rows": 3}')]


async def test_a_step_with_other_arguments_or_the_next_of_equals_is_another_step(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        await step(books, task, "load", "1")
        await step(books, task, "load", "2", arguments="[1]")
        await step(books, task, "load", "3", ordinal=1)
        await step(books, task, "save", "4")
        await books.release(task)
        assert sorted(each.result for each in (await books.taken()).steps) == ["1", "2", "3", "4"]


async def test_a_step_that_ran_twice_is_remembered_once_and_the_first_result_counts(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        await step(books, task, "load", "1")
        assert (await step(books, task, "load", "2")).result == "1"
        await books.release(task)
        assert [each.result for each in (await books.taken()).steps] == ["1"]


async def test_a_step_of_an_old_fence_is_refused(store: Store) -> None:
    async with task_harness(store) as books:
        old = await books.running()
        await books.lapse()
        new = await books.taken("w2")
        assert (await step(books, old, "load", "1")).lost
        assert not (await step(books, new, "load", "2")).lost
        await books.release(new)
        assert [each.result for each in (await books.taken()).steps] == ["2"]


async def test_steps_are_bounded_each_and_together_and_leave_nothing_behind(store: Store) -> None:
    async with task_harness(store, task_step_limit=1000, task_memory_limit=2500) as books:
        task = await books.running()
        with pytest.raises(Failed, match="MCPFLEET_TASK_STEP_LIMIT"):
            await step(books, task, "load", f'"{"x" * 1000}"')
        text = f'"{"x" * 400}"'
        await step(books, task, "load", text)
        await step(books, task, "load", text, ordinal=1)
        with pytest.raises(Failed, match="MCPFLEET_TASK_MEMORY_LIMIT"):
            await step(books, task, "load", text, ordinal=2)
        await books.release(task)
        assert len((await books.taken()).steps) == 2


def test_a_steps_key_is_the_same_over_attempts_and_names_its_task() -> None:
    first = step_key("a", "load", "d", 0)
    assert first == step_key("a", "load", "d", 0)
    others = [step_key("b", "load", "d", 0), step_key("a", "save", "d", 0), step_key("a", "load", "e", 0)]
    assert len({first, *others, step_key("a", "load", "d", 1)}) == 5
