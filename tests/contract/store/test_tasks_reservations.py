"""Idempotency keys, on both databases (D9): one run under a key, and what its repeats are told."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from mcpfleet.contracts.pool_tasks import Remember
from mcpfleet.contracts.tasks import KeyOutcome, Once, Reserve, Reserved, Status, once_key
from mcpfleet.store.engine import Store
from mcpfleet.tasks.tables import reservations, states
from tests.contract.store.statements import statements
from tests.contract.store.task_harness import (
    DONE,
    OTHERS,
    OWNER,
    POOL,
    TaskHarness,
    a_task,
    age,
    replicas,
    task_harness,
    token,
)

ARGUMENTS = token()


def once(arguments: str = ARGUMENTS) -> Once:
    return Once(key=token(), arguments=arguments)


async def reserve(books: TaskHarness, key: Once, **fields: Any) -> Reserved:
    common: dict[str, Any] = {"pool": POOL, "lasts": 60, "holder": token()}
    return await books.repository.keys.reserve(Reserve(once=key, **{**common, **fields}))


async def remember(books: TaskHarness, key: Once, fence: int, result: str | None = DONE, pool: str = POOL) -> bool:
    return await books.repository.keys.remember(pool, Remember(key=key.key, fence=fence, result=result))


@pytest.mark.rule("I2")
async def test_a_repeat_gets_the_first_result(store: Store) -> None:
    async with task_harness(store) as books:
        key = once()
        first = await reserve(books, key)
        assert first.outcome is KeyOutcome.NEW
        assert await remember(books, key, first.fence)
        repeat = await reserve(books, key)
        assert (repeat.outcome, repeat.result) == (KeyOutcome.REPEAT, DONE)


@pytest.mark.rule("D9")
async def test_while_the_first_runs_a_repeat_is_told_to_wait(store: Store) -> None:
    async with task_harness(store) as books:
        key = once()
        await reserve(books, key)
        assert (await reserve(books, key)).outcome is KeyOutcome.RUNNING


@pytest.mark.rule("D9")
async def test_other_arguments_under_the_key_are_told_so(store: Store) -> None:
    async with task_harness(store) as books:
        key = once()
        first = await reserve(books, key)
        other = key.model_copy(update={"arguments": token()})
        assert (await reserve(books, other)).outcome is KeyOutcome.MISMATCH
        await remember(books, key, first.fence)
        assert (await reserve(books, other)).outcome is KeyOutcome.MISMATCH


async def test_reserving_twice_for_one_call_is_reserving_once(store: Store) -> None:
    async with task_harness(store) as books:
        key, holder = once(), token()
        first = await reserve(books, key, holder=holder)
        assert await reserve(books, key, holder=holder) == first


@pytest.mark.rule("I1")
async def test_of_a_hundred_at_once_over_three_replicas_one_runs(url: str, store: Store) -> None:
    async with replicas(url, 3) as harnesses:
        key = once()
        told: list[KeyOutcome] = []

        async def call(number: int) -> None:
            told.append((await reserve(harnesses[number % 3], key)).outcome)

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(call, number)
        assert told.count(KeyOutcome.NEW) == 1
        assert set(told) == {KeyOutcome.NEW, KeyOutcome.RUNNING}


@pytest.mark.rule("D9")
async def test_a_key_counts_within_its_endpoint_principal_and_tool() -> None:
    same = once_key(OWNER, "hold", "k")
    assert same == once_key(OWNER, "hold", "k")
    others = [once_key(binding, "hold", "k") for binding in OTHERS]
    others += [once_key(OWNER, "other", "k"), once_key(OWNER, "hold", "K")]
    assert len({same, *others}) == 1 + len(others)


async def test_a_holder_that_is_lost_leaves_an_uncertain_outcome_that_stays_so(store: Store) -> None:
    async with task_harness(store) as books:
        key = once()
        first = await reserve(books, key, lasts=30)
        await age(store, reservations, "lease_until", 31)
        for _ in range(2):
            assert (await reserve(books, key)).outcome is KeyOutcome.UNCERTAIN
        assert not await remember(books, key, first.fence), "its worker comes back, and is told so"
        assert (await reserve(books, key)).outcome is KeyOutcome.UNCERTAIN


async def test_an_edge_that_lost_its_worker_says_so_at_once(store: Store) -> None:
    async with task_harness(store) as books:
        key, holder = once(), token()
        first = await reserve(books, key, holder=holder)
        await reserve(books, key, holder=token(), ended="uncertain")
        assert (await reserve(books, key)).outcome is KeyOutcome.RUNNING, "only the holder can say so"
        await reserve(books, key, holder=holder, ended="uncertain")
        assert (await reserve(books, key)).outcome is KeyOutcome.UNCERTAIN
        assert not await remember(books, key, first.fence)


async def test_a_call_that_has_not_run_leaves_nothing_behind(store: Store) -> None:
    async with task_harness(store) as books:
        key, holder = once(), token()
        await reserve(books, key, holder=holder)
        await reserve(books, key, holder=holder, ended="not_run")
        assert (await reserve(books, key)).outcome is KeyOutcome.NEW


async def test_a_tool_that_may_run_again_does_and_its_older_run_is_fenced(store: Store) -> None:
    async with task_harness(store) as books:
        key, holder = once(), token()
        first = await reserve(books, key)
        await age(store, reservations, "lease_until", 61)
        second = await reserve(books, key, holder=holder, again_is_safe=True)
        assert (second.outcome, second.fence) == (KeyOutcome.NEW, first.fence + 1)
        assert not await remember(books, key, first.fence)
        await reserve(books, key, holder=holder, ended="not_run")
        assert (await reserve(books, key)).outcome is KeyOutcome.UNCERTAIN, "the first may still have run"
        third = await reserve(books, key, again_is_safe=True)
        assert await remember(books, key, third.fence)


async def test_a_result_is_kept_once_and_by_the_pool_of_the_call(store: Store) -> None:
    async with task_harness(store) as books:
        key = once()
        first = await reserve(books, key)
        assert not await remember(books, key, first.fence, pool="archive")
        assert await remember(books, key, first.fence)
        assert await remember(books, key, first.fence), "asked again, since its answer was lost"
        assert (await reserve(books, key)).result == DONE


async def test_a_result_that_is_too_large_to_keep_is_known_to_have_ended(store: Store) -> None:
    async with task_harness(store) as books:
        key = once()
        first = await reserve(books, key)
        assert await remember(books, key, first.fence, result=None)
        repeat = await reserve(books, key)
        assert (repeat.outcome, repeat.result, repeat.task) == (KeyOutcome.REPEAT, None, None)


async def test_records_are_kept_for_their_time(store: Store) -> None:
    async with task_harness(store) as books:
        key = once()
        first = await reserve(books, key)
        await remember(books, key, first.fence)
        assert await books.repository.sweeps.forget_reservations() == 0
        await age(store, reservations, "expires_at", books.settings.idempotency_kept + 1)
        assert await books.repository.sweeps.forget_reservations() == 1
        assert (await reserve(books, key)).outcome is KeyOutcome.NEW


@pytest.mark.rule("D9")
async def test_a_task_under_a_key_is_one_task(store: Store) -> None:
    async with task_harness(store) as books:
        key = once()
        first = await books.create(a_task(), key)
        assert first.task is not None
        repeat = await books.create(a_task(), key)
        assert (repeat.outcome, repeat.task) == (KeyOutcome.REPEAT, first.task)
        other = await books.create(a_task(), key.model_copy(update={"arguments": token()}))
        assert (other.outcome, other.task) == (KeyOutcome.MISMATCH, None)
        assert len((await books.claim(most=9)).tasks) == 1


@pytest.mark.rule("D9")
async def test_of_tasks_that_are_made_at_once_under_a_key_there_is_one(url: str, store: Store) -> None:
    async with replicas(url, 3) as harnesses:
        key = once()
        ids: set[str] = set()

        async def make(number: int) -> None:
            created = await harnesses[number % 3].create(a_task(), key)
            assert created.task is not None
            ids.add(created.task.id)

        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(make, number)
        assert len(ids) == 1
        assert len((await harnesses[0].claim(most=20)).tasks) == 1


async def test_making_a_task_twice_with_its_key_is_making_it_once(store: Store) -> None:
    async with task_harness(store) as books:
        key, task = once(), a_task()
        first, second = await books.create(task, key), await books.create(task, key)
        assert first == second
        assert first.outcome is KeyOutcome.NEW


@pytest.mark.parametrize("state", ["runs", "uncertain"])
async def test_a_key_that_a_call_holds_makes_no_task(store: Store, state: str) -> None:
    async with task_harness(store) as books:
        key = once()
        await reserve(books, key)
        if state == "uncertain":
            await age(store, reservations, "lease_until", 61)
        created = await books.create(a_task(), key)
        assert created.outcome is (KeyOutcome.RUNNING if state == "runs" else KeyOutcome.UNCERTAIN)
        assert (await books.claim()).tasks == ()


async def test_a_key_stays_as_long_as_its_task_and_goes_with_it(store: Store) -> None:
    async with task_harness(store) as books:
        key = once()
        made = (await books.create(a_task(retention=60), key)).task
        assert made is not None
        await age(store, reservations, "expires_at", books.settings.idempotency_kept + 1)
        assert await books.repository.sweeps.forget_reservations() == 0
        assert (await books.create(a_task(), key)).outcome is KeyOutcome.REPEAT
        task = await books.taken()
        await books.settle(task)
        await age(store, states, "until", 61)
        fresh = await books.create(a_task(), key)
        assert fresh.outcome is KeyOutcome.NEW, "its task has expired, if nobody has swept it yet"
        assert fresh.task is not None
        assert await books.repository.sweeps.forget() == 1
        assert (await books.create(a_task(), key)).outcome is KeyOutcome.REPEAT


async def test_the_inline_repeat_of_a_task_gets_its_handle(store: Store) -> None:
    async with task_harness(store) as books:
        key = once()
        made = (await books.create(a_task(), key)).task
        assert made is not None
        repeat = await reserve(books, key)
        assert (repeat.outcome, repeat.task, made.status) == (KeyOutcome.REPEAT, made.id, Status.WORKING)


@pytest.mark.rule("D9")
async def test_who_repeats_a_call_that_runs_or_has_ended_reads_alone(store: Store) -> None:
    """A hundred that wait must not queue up for a store's one writer."""
    async with task_harness(store) as books:
        key = once()
        first = await reserve(books, key)
        with statements() as waiting:
            assert (await reserve(books, key)).outcome is KeyOutcome.RUNNING
        await remember(books, key, first.fence)
        with statements() as told:
            assert (await reserve(books, key)).result == DONE
        assert (waiting, told) == (["SELECT"], ["SELECT", "SELECT"])
