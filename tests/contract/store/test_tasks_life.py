"""A task's life in the store, on both databases: made once, read by its owner alone, ended once."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from sqlalchemy import text

from mcpfleet.bus.errors import Failed
from mcpfleet.contracts.operator_tasks import StopTask
from mcpfleet.contracts.pool_tasks import Settle
from mcpfleet.contracts.tasks import KeyOutcome, Once, Status
from mcpfleet.store.engine import Store
from mcpfleet.tasks.tables import origins, reservations, states
from tests.contract.store.statements import statements
from tests.contract.store.task_harness import (
    DONE,
    OTHERS,
    OWNER,
    POOL,
    a_task,
    age,
    column,
    replicas,
    task_harness,
    token,
)


@pytest.mark.rule("K4")
async def test_a_task_is_made_whole_and_k5_read_back_as_its_owner(store: Store) -> None:
    async with task_harness(store) as books:
        task = a_task(message="begins", policy='{"scopes":[]}', poll_ms=500)
        created = await books.create(task)
        assert created.outcome is KeyOutcome.NEW
        view = created.task
        assert view is not None
        assert (view.id, view.status, view.ttl_ms, view.poll_ms) == (task.id, Status.WORKING, None, 500)
        assert (view.message, view.policy, view.name, view.end) == ("begins", '{"scopes":[]}', "report", None)
        assert view == await books.get(task.id)


@pytest.mark.rule("K4")
@pytest.mark.parametrize("away", ["tasks_origins", "tasks_states"])
async def test_what_cannot_be_made_whole_is_not_made_at_all(store: Store, away: str) -> None:
    async with task_harness(store) as books:
        key = Once(key=token(), arguments=token())
        await rename(store, away, "elsewhere")
        with pytest.raises(Exception, match=away):
            await books.create(a_task(), key)
        await rename(store, "elsewhere", away)
        async with store.read() as connection:
            for table in (states, origins, reservations):
                assert (await connection.execute(table.select())).all() == []
        assert (await books.create(a_task(), key)).outcome is KeyOutcome.NEW


async def rename(store: Store, table: str, name: str) -> None:
    async with store.write() as connection:
        await connection.execute(text(f"ALTER TABLE {table} RENAME TO {name}"))


@pytest.mark.rule("K6")
async def test_the_origin_is_kept_byte_for_byte(store: Store) -> None:
    origin = '{ "b":1.0,\n "a" : "é\\u0000 \\ud83d\\ude00", "a": 1E400 } '
    async with task_harness(store) as books:
        await books.made(origin=origin)
        assert (await books.taken()).origin == origin


async def test_a_task_that_is_made_twice_is_one(store: Store) -> None:
    """Its maker chose the id, and did not hear the first answer."""
    async with task_harness(store) as books:
        task = a_task()
        first, second = await books.create(task), await books.create(task)
        assert first == second
        assert len((await books.claim(most=5)).tasks) == 1


async def test_a_task_that_is_made_twice_at_once_by_two_replicas_is_one(url: str, store: Store) -> None:
    async with replicas(url, 2) as (one, other):
        made = [a_task() for _ in range(20)]
        async with anyio.create_task_group() as tasks:
            for task in made:
                tasks.start_soon(one.create, task)
                tasks.start_soon(other.create, task)
        taken = (await one.claim(most=50)).tasks
        assert sorted(task.id for task in taken) == sorted(task.id for task in made)


async def test_an_id_that_is_anothers_is_refused_and_nothing_is_told(store: Store) -> None:
    async with task_harness(store) as books:
        task = a_task()
        await books.create(task)
        for thief in (task.model_copy(update={"binding": OTHERS[0]}), task.model_copy(update={"origin": "{}"})):
            with pytest.raises(Failed, match="another task has this id"):
                await books.create(thief)
        assert (await books.taken()).origin == task.origin


@pytest.mark.rule("K8")
@pytest.mark.parametrize("stranger", OTHERS, ids=["endpoint", "subject", "client", "tenant"])
async def test_what_is_anothers_does_not_exist(store: Store, stranger: Any) -> None:
    async with task_harness(store) as books:
        view = await books.made()
        assert await books.get(view.id, stranger) is None
        assert not (await books.update(view.id, {"a": "{}"}, stranger)).known
        assert not await books.cancel(view.id, stranger)
        assert (await books.seen(view.id)) == view


@pytest.mark.rule("K8")
async def test_unknown_foreign_and_expired_take_the_same_statements(store: Store) -> None:
    async with task_harness(store) as books:
        live, over = await books.made(), await books.running()
        await books.settle(await books.taken())
        await books.settle(over)
        await age(store, states, "until", 10_000)
        seen = []
        for task, binding in ((live.id, OTHERS[0]), ("x" * 32, OWNER), (over.id, OWNER)):
            with statements() as run:
                assert await books.get(task, binding) is None
                assert not await books.cancel(task, binding)
                assert not (await books.update(task, {"a": "{}"}, binding)).known
            seen.append(run)
        assert seen[0] == seen[1] == seen[2]
        assert len(seen[0]) == 3


@pytest.mark.rule("K7")
async def test_an_end_is_the_exact_text_and_d8_its_retention_counts_from_it(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running(retention=600)
        await age(store, states, "created_at", 100)
        assert await books.settle(task)
        view = await books.seen(task.id)
        assert (view.status, view.end) == (Status.COMPLETED, DONE)
        assert view.ttl_ms is not None
        assert 700_000 <= view.ttl_ms < 702_000
        assert view.updated_at - view.created_at == pytest.approx(100, abs=2)


@pytest.mark.rule("K7")
@pytest.mark.parametrize("how", ["settle", "fail", "cancel", "release", "extend", "stop", "overdue"])
async def test_a_terminal_task_never_changes(store: Store, how: str) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        assert await books.settle(task)
        before = await books.seen(task.id)
        match how:
            case "settle":  # the same holder, once more, with something else
                await books.settle(task, Status.COMPLETED, '{"other":1}')
            case "fail":
                assert not await books.settle(task, Status.FAILED, '{"code":-32603,"message":""}')
            case "cancel":
                assert await books.cancel(task.id)
            case "release":
                assert await books.release(task) is None
            case "extend":
                assert (await books.extend(task, message="no")).ended == (task.id,)
            case "stop":
                await books.repository.canceller.stop(stop(task.id))
            case "overdue":
                await books.repository.sweeps.end_overdue()
        assert await books.seen(task.id) == before


def stop(task: str) -> StopTask:
    return StopTask(id=task)


@pytest.mark.rule("K7", "invariant 3")
async def test_of_many_who_end_a_task_one_does(url: str, store: Store) -> None:
    async with replicas(url, 3) as harnesses:
        for _ in range(5):
            task = await harnesses[0].running()
            won: list[str] = []

            async def end(number: int, task: Any = task, won: list[str] = won) -> None:
                books = harnesses[number % 3]
                if number == 0:
                    await books.cancel(task.id)
                elif number == 1:
                    await books.repository.canceller.stop(stop(task.id))
                elif await books.settle(task, Status.COMPLETED, f'{{"n":{number}}}'):
                    won.append(f'{{"n":{number}}}')

            async with anyio.create_task_group() as tasks:
                for number in range(12):
                    tasks.start_soon(end, number)
            view = await harnesses[0].seen(task.id)
            assert view.status.is_end
            again = await harnesses[1].seen(task.id)
            assert again == view
            if view.status is Status.COMPLETED:
                # To the store the same fence is the same holder; its first word stands.
                assert view.end in won


async def test_an_end_that_is_told_twice_counts_once_and_is_told_so(store: Store) -> None:
    """The answer was lost: the holder asks again."""
    async with task_harness(store) as books:
        task = await books.running()
        assert await books.settle(task)
        assert await books.settle(task)
        assert (await books.seen(task.id)).version == 2


@pytest.mark.rule("M68")
@pytest.mark.parametrize(
    ("status", "end"),
    [(Status.WORKING, "{}"), (Status.INPUT_REQUIRED, None), (Status.COMPLETED, None), (Status.CANCELLED, "{}")],
)
async def test_what_is_no_end_is_refused(store: Store, status: Status, end: str | None) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        with pytest.raises(Failed, match="settle"):
            await books.settle(task, status, end)


async def test_what_is_too_large_names_its_setting(store: Store) -> None:
    limits = {"task_origin_limit": 200, "task_end_limit": 200, "task_step_limit": 2000, "task_memory_limit": 4000}
    async with task_harness(store, **limits) as books:
        with pytest.raises(Failed, match="MCPFLEET_TASK_ORIGIN_LIMIT"):
            await books.create(a_task(origin=f'"{"x" * 200}"'))
        task = await books.running()
        with pytest.raises(Failed, match="MCPFLEET_TASK_END_LIMIT"):
            await books.settle(task, Status.COMPLETED, f'"{"x" * 200}"')


@pytest.mark.rule("D8")
async def test_a_task_is_forgotten_with_all_that_is_its_own_when_its_retention_ends(store: Store) -> None:
    async with task_harness(store) as books:
        task, kept = await books.running(retention=60), await books.made(retention=3600)
        await books.settle(task)
        await books.cancel(kept.id)
        await age(store, states, "until", 61)
        assert await books.get(task.id) is None
        assert await books.repository.sweeps.forget() == 1
        async with store.read() as connection:
            assert len((await connection.execute(states.select())).all()) == 1
            assert len((await connection.execute(origins.select())).all()) == 1
        assert await books.repository.sweeps.forget() == 0
        assert (await books.seen(kept.id)).status is Status.CANCELLED


@pytest.mark.rule("K10")
async def test_the_cancel_of_what_nobody_holds_ends_it(store: Store) -> None:
    async with task_harness(store) as books:
        view = await books.made()
        assert await books.cancel(view.id)
        assert (await books.seen(view.id)).status is Status.CANCELLED
        assert (await books.claim()).tasks == ()


@pytest.mark.rule("K10")
@pytest.mark.parametrize("winner", [Status.CANCELLED, Status.COMPLETED])
async def test_the_cancel_of_what_runs_is_a_wish_that_its_holder_hears(store: Store, winner: Status) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        assert await books.cancel(task.id)
        assert (await books.seen(task.id)).status is Status.WORKING
        assert (await books.extend(task)).cancelled == (task.id,)
        assert await books.settle(task, winner, DONE if winner is Status.COMPLETED else None)
        assert (await books.seen(task.id)).status is winner


@pytest.mark.rule("K10")
async def test_a_cancel_outlives_its_holder(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        await books.cancel(task.id)
        assert await books.lapse() == 1
        assert (await books.seen(task.id)).status is Status.CANCELLED


async def test_a_holder_that_drains_gives_a_cancelled_task_to_nobody(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        await books.cancel(task.id)
        assert await books.release(task) is Status.CANCELLED


async def test_an_operator_ends_a_task_whoever_holds_it(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        stopped, (change,) = await books.repository.canceller.stop(stop(task.id))
        assert stopped.status is Status.CANCELLED
        assert change.notify == (POOL, "w1")
        assert not await books.settle(task)
        assert (await books.extend(task)).lost == (task.id,)
        assert (await books.seen(task.id)).status is Status.CANCELLED


@pytest.mark.rule("D8")
async def test_last_updated_moves_only_when_the_task_changes(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        before = await books.seen(task.id)
        await age(store, states, "updated_at", 100)
        await books.extend(task)
        aged = await books.seen(task.id)
        assert aged.version == before.version
        assert aged.updated_at == pytest.approx(before.updated_at - 100)
        await books.extend(task, message="1/3 loaded")
        told = await books.seen(task.id)
        assert (told.version, told.message) == (before.version + 1, "1/3 loaded")
        assert told.updated_at > before.updated_at
        await books.extend(task, message="1/3 loaded")
        assert await books.seen(task.id) == told


async def test_versions_are_of_those_that_exist(store: Store) -> None:
    async with task_harness(store) as books:
        task, other = await books.running(), await books.made()
        await books.settle(task)
        assert await books.repository.reader.versions([task.id, other.id, "x" * 32]) == {task.id: 2, other.id: 1}


async def test_a_task_costs_few_statements(store: Store) -> None:
    async with task_harness(store) as books:
        with statements() as made:
            await books.made()
        with statements() as claimed:
            task = await books.taken()
        with statements() as settled:
            await books.settle(task)
        with statements() as read:
            await books.seen(task.id)
        if store.singles is not None:
            assert (made, claimed, settled, read) == (["WITH", "SELECT"], ["WITH"], ["WITH"], ["SELECT"])
            return
        assert made == ["INSERT", "INSERT", "SELECT"]
        assert claimed == ["SELECT", "UPDATE", "SELECT"]
        assert settled == ["SELECT", "UPDATE"]
        assert read == ["SELECT"]


async def test_what_arrives_together_is_one_transaction(store: Store) -> None:
    async with task_harness(store) as books:
        with statements() as made:
            async with anyio.create_task_group() as tasks:
                for _ in range(30):
                    tasks.start_soon(books.made)
        assert made.count("WITH" if store.singles else "INSERT") <= 6
        taken = (await books.claim(most=30)).tasks
        assert len(taken) == 30
        with statements() as settled:
            async with anyio.create_task_group() as tasks:
                for task in taken:
                    tasks.start_soon(books.settle, task)
        assert settled.count("WITH" if store.singles else "UPDATE") <= 3
        for task in taken:
            assert (await books.seen(task.id)).status is Status.COMPLETED


async def test_a_settle_with_an_old_fence_beside_the_right_one_is_told_so(store: Store) -> None:
    """Both are in one batch."""
    async with task_harness(store) as books:
        old = await books.running()
        await books.lapse()
        new = await books.taken("w2")
        told: dict[int, bool] = {}

        async def settle(task: Any) -> None:
            told[task.fence] = await books.settle(task)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(books.seen, new.id)
            for task in (old, new):
                tasks.start_soon(settle, task)
        assert told == {old.fence: False, new.fence: True}
        assert await column(store, new.id, "status") == "completed"


def test_settle_names_a_kind_of_failure_not_a_text() -> None:
    with pytest.raises(ValueError, match="failure"):
        Settle(id="x" * 32, fence=1, status=Status.FAILED, end="{}", failure="It said: boom")
