"""Holders of tasks, on both databases: one at a time, by the newest fence, for as long as it is heard."""

from __future__ import annotations

import anyio
import pytest

from mcpfleet.contracts.manifest import digest_of
from mcpfleet.contracts.operator_tasks import StopTask
from mcpfleet.contracts.pool_tasks import Claimed, Extend, Settle, TaskLease
from mcpfleet.contracts.tasks import KeyOutcome, Once, Reserve, Status
from mcpfleet.store.engine import Store
from mcpfleet.tasks.tables import states, watch
from tests.contract.store.task_harness import (
    POOL,
    REPORT,
    TaskHarness,
    a_task,
    age,
    column,
    replicas,
    task_harness,
    token,
)

FAILED = '{"code":-32603,"message":"broken"}'


async def test_the_longest_waiting_go_first_up_to_as_many_as_are_wanted(store: Store) -> None:
    async with task_harness(store) as books:
        made = []
        for number in range(4):
            made.append((await books.made()).id)
            await age(store, states, "ready_at", 1 + number)
        assert [task.id for task in (await books.claim(most=3)).tasks] == made[:3]
        assert [task.id for task in (await books.claim(most=3)).tasks] == made[3:]
        assert (await books.claim(most=3)).tasks == ()


async def test_a_worker_gets_what_it_can_run_of_its_own_pool(store: Store) -> None:
    other = digest_of(b"other")
    async with task_harness(store) as books:
        await books.made(definition=other)
        await books.made(pool="archive")
        mine = await books.made()
        assert [task.id for task in (await books.claim(most=9)).tasks] == [mine.id]
        assert len((await books.claim(most=9, definitions=(other, REPORT))).tasks) == 1


async def test_many_claimers_of_many_replicas_get_each_task_once(url: str, store: Store) -> None:
    async with replicas(url, 3) as harnesses:
        made = {(await harnesses[0].made()).id for _ in range(60)}
        got: list[str] = []

        async def work(books: TaskHarness, process: str) -> None:
            while taken := (await books.claim(most=4, process=process)).tasks:
                got.extend(task.id for task in taken)
                for task in taken:
                    assert await books.settle(task)

        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(work, harnesses[number % 3], f"w{number}")
        assert sorted(got) == sorted(made)


async def test_a_claim_carries_no_more_than_a_message_takes(store: Store) -> None:
    large = f'"{"x" * 3000}"'
    async with task_harness(store, task_origin_limit=4000, task_memory_limit=4000) as books:
        for _ in range(4):
            await books.made(origin=large)
        sizes = []
        while taken := (await books.claim(most=9)).tasks:
            sizes.append(len(taken))
        assert sizes == [2, 2]


@pytest.mark.rule("K21", "invariant 3")
async def test_the_write_of_an_old_fence_is_refused_and_told_so(store: Store) -> None:
    """A worker that was paused past its lease: nothing that it writes counts, whoever has the task now."""
    async with task_harness(store) as books:
        for taken_again in (False, True):
            old = await books.running("paused")
            assert await books.lapse() == 1
            if taken_again:
                assert (await books.taken("other")).fence > old.fence
            assert not await books.settle(old)
            assert (await books.extend(old, process="paused")).lost == (old.id,)
            assert (await books.ask(old, "month")).lost
            assert await books.release(old) is None
            assert (await column(store, old.id, "status")) == "working"
            await books.cancel(old.id)
            await books.lapse()


async def test_a_lease_that_is_renewed_does_not_lapse(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        await age(store, states, "lease_until", books.settings.task_lease + 1)
        await books.extend(task)
        assert await books.repository.sweeps.lapse() == []
        assert await books.settle(task)


async def test_extend_renews_many_and_names_the_lost_among_them(store: Store) -> None:
    async with task_harness(store) as books:
        for _ in range(5):
            await books.made()
        mine = (await books.claim(most=5)).tasks
        await books.settle(mine[0])
        await books.repository.canceller.stop(StopTask(id=mine[2].id))
        await books.cancel(mine[1].id)
        await age(store, states, "lease_until", books.settings.task_lease - 1)
        extended = await books.extend(*mine)
        assert extended.ended == (mine[0].id,)
        assert extended.lost == (mine[2].id,)
        assert extended.cancelled == (mine[1].id,)
        for task in (mine[1], *mine[3:]):
            assert await column(store, task.id, "lease_until") > await column(store, task.id, "created_at") + 5


@pytest.mark.rule("D8")
async def test_a_vanished_holders_task_is_taken_again_with_a_higher_fence(store: Store) -> None:
    async with task_harness(store) as books:
        first = await books.running()
        await age(store, states, "lease_until", books.settings.task_lease + 1)
        (change,) = await books.repository.sweeps.lapse()
        assert change.ready == (POOL, REPORT)
        second = await books.taken("w2")
        assert (second.id, second.attempts, second.alone) == (first.id, 1, False)
        assert second.fence > first.fence


async def test_a_task_whose_holders_vanish_runs_alone_and_then_fails_as_their_crash(store: Store) -> None:
    async with task_harness(store, task_backoff=0) as books:
        task = await books.running(attempts=50)
        await books.lapse()
        await books.taken()
        await books.lapse()
        beside = await books.claim(held=1)
        assert (beside.tasks, beside.alone_waits) == ((), True)
        await books.made()
        (alone,) = (await books.claim(most=9)).tasks
        assert (alone.id, alone.alone) == (task.id, True)
        await books.lapse()
        view = await books.seen(task.id)
        assert view.status is Status.FAILED
        assert view.end is not None
        assert "crashed its worker" in view.end
        assert view.message is not None
        assert "crashed its worker" in view.message


async def test_a_task_that_must_run_alone_keeps_nobody_from_the_others(store: Store) -> None:
    async with task_harness(store, task_backoff=0) as books:
        await books.running(attempts=50)
        await books.lapse()
        await books.taken()
        await books.lapse()
        other = await books.made()
        assert [task.id for task in (await books.claim(held=1)).tasks] == [other.id]


async def test_a_released_task_counts_no_attempt_and_goes_to_the_next(store: Store) -> None:
    async with task_harness(store) as books:
        first = await books.running()
        assert await books.release(first) is Status.WORKING
        second = await books.taken("w2")
        assert (second.attempts, second.fence) == (0, first.fence + 1)
        assert not await books.settle(first)
        assert await books.settle(second)


async def test_a_failed_attempt_counts_waits_longer_each_time_and_the_last_is_the_end(store: Store) -> None:
    async with task_harness(store) as books:
        await books.made(attempts=3)
        pauses = []
        for _ in range(3):
            await age(store, states, "ready_at", 100)
            task = await books.taken()
            end = Settle(id=task.id, fence=task.fence, status=Status.FAILED, end=FAILED, failure="handler")
            status = await books.release(task, end)
            if status is Status.WORKING:
                pauses.append(await column(store, task.id, "ready_at"))
        assert status is Status.FAILED
        assert (await books.seen(task.id)).end == FAILED
        assert pauses[1] > pauses[0]


async def test_a_claim_whose_answer_was_lost_is_given_back_and_counts_nothing(store: Store) -> None:
    """Its worker does not know what it got; it knows the claim."""
    async with task_harness(store) as books:
        await books.made()
        lost = token()
        (unheard,) = (await books.claim(claim=lost)).tasks
        kept = await books.running()
        held = (TaskLease(id=kept.id, fence=kept.fence),)
        extended, changes = await books.repository.claims.extend(
            POOL, Extend(process="w1", tasks=held, unheard=(lost, token()))
        )
        assert extended.lost == ()
        assert [change.task for change in changes if change.ready] == [unheard.id]
        again = await books.taken("w2")
        assert (again.id, again.attempts) == (unheard.id, 0)
        assert not await books.settle(unheard)
        assert await books.settle(kept)


async def test_another_processs_claim_is_not_given_back(store: Store) -> None:
    async with task_harness(store) as books:
        await books.made()
        claim = token()
        (task,) = (await books.claim(claim=claim)).tasks
        await books.repository.claims.extend(POOL, Extend(process="w2", tasks=(), unheard=(claim,)))
        assert await books.settle(task)


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("D8")
async def test_the_run_limit_ends_what_hangs_and_its_holder_is_told(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running(run_limit=60)
        assert 58 < task.limit <= 60
        await age(store, states, "until", 61)
        (change,) = await books.repository.sweeps.end_overdue()
        assert (change.notify, change.ended) == ((POOL, "w1"), (Status.FAILED, "run_limit"))
        assert "longer than its limit" in str((await books.seen(task.id)).end)
        assert not await books.settle(task)


@pytest.mark.rule("D8")
async def test_the_run_limit_is_absolute_over_attempts_and_begins_with_the_first(store: Store) -> None:
    async with task_harness(store) as books:
        await books.made(run_limit=60)
        await age(store, states, "created_at", 1000)
        first = await books.taken()
        await age(store, states, "until", 30)
        await books.release(first)
        second = await books.taken()
        assert 25 < second.limit <= 30


async def test_what_no_worker_takes_ends_and_says_why(store: Store) -> None:
    async with task_harness(store, task_unclaimed=50) as books:
        task = await books.made()
        await age(store, states, "until", 51)
        await books.repository.sweeps.end_overdue()
        assert "no worker took it" in str((await books.seen(task.id)).end)


@pytest.mark.rule("K21")
async def test_a_rollout_that_leaves_no_worker_of_a_tasks_version_says_why(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running(run_limit=60)
        await books.release(task)
        assert (await books.claim(definitions=(digest_of(b"newer"),))).tasks == ()
        await age(store, states, "until", 61)
        await books.repository.sweeps.end_overdue()
        assert "no worker of its version took it" in str((await books.seen(task.id)).end)


@pytest.mark.rule("K20")
async def test_tasks_are_counted_by_what_they_wait_for(store: Store) -> None:
    async with task_harness(store) as books:
        asking = await books.running()
        await books.ask(asking, "month")
        await books.running()
        await books.made()
        assert await books.repository.sweeps.count() == {"ready": 1, "held": 1, "waiting": 1}


# -- the outage rule --------------------------------------------------------------------------------------------------


async def test_no_lease_lapses_for_one_lease_after_nobody_could_be_heard(store: Store) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        away = books.settings.tasks_away + 20
        await age(store, watch, "proven_at", away)
        await age(store, states, "lease_until", away)
        assert await books.repository.sweeps.lapse() == [], "a sweep that comes before the first proof takes nothing"
        await books.repository.grace.prove()
        assert await books.repository.sweeps.lapse() == []
        await books.extend(task)
        await age(store, watch, "grace_until", books.settings.task_lease)
        assert await books.repository.sweeps.lapse() == [], "its holder was heard within the grace"
        await age(store, states, "lease_until", books.settings.task_lease + 1)
        assert len(await books.repository.sweeps.lapse()) == 1
        assert (await books.taken()).attempts == 1


async def test_a_short_gap_gives_no_grace(store: Store) -> None:
    async with task_harness(store) as books:
        await books.running()
        await age(store, watch, "proven_at", books.settings.tasks_away - 1)
        await books.repository.grace.prove()
        assert await books.lapse() == 1


async def test_replicas_that_prove_at_once_after_an_outage_give_one_grace(url: str, store: Store) -> None:
    async with replicas(url, 3) as harnesses:
        await age(store, watch, "proven_at", 60)
        async with anyio.create_task_group() as tasks:
            for books in harnesses:
                tasks.start_soon(books.repository.grace.prove)
        await harnesses[0].running()
        await age(store, states, "lease_until", 11)
        assert await harnesses[1].repository.sweeps.lapse() == []


async def test_a_new_store_begins_with_grace_and_opening_again_changes_nothing(store: Store) -> None:
    books = TaskHarness(store)
    await books.repository.open()
    await books.running()
    assert await books.lapse() == 0
    await books.calm()
    assert await books.lapse() == 1


async def test_sweeps_of_replicas_at_once_take_each_lease_once(url: str, store: Store) -> None:
    async with replicas(url, 3) as harnesses:
        for _ in range(20):
            await harnesses[0].made()
        await harnesses[0].claim(most=20)
        await age(store, states, "lease_until", 11)
        taken: list[str] = []

        async def sweep(books: TaskHarness) -> None:
            taken.extend(change.task for change in await books.repository.sweeps.lapse())

        async with anyio.create_task_group() as tasks:
            for books in harnesses * 2:
                tasks.start_soon(sweep, books)
        assert len(taken) == len(set(taken)) == 20
        assert {task.attempts for task in (await harnesses[0].claim(most=50)).tasks} == {1}


# -- defer ------------------------------------------------------------------------------------------------------------


async def test_a_deferred_task_is_its_makers_at_once(store: Store) -> None:
    async with task_harness(store) as books:
        task = a_task()
        fence = await books.defer(task)
        assert await books.defer(task) == fence, "asked twice"
        assert (await books.claim()).tasks == ()
        held = Claimed(
            id=task.id, fence=fence, definition=task.definition, name=task.name, origin="", attempts=0, limit=0
        )
        assert (await books.extend(held)).lost == ()
        assert await books.settle(held)
        assert (await books.seen(task.id)).status is Status.COMPLETED


async def test_a_deferred_task_outlives_its_maker(store: Store) -> None:
    async with task_harness(store) as books:
        task = a_task()
        fence = await books.defer(task)
        await books.lapse()
        taken = await books.taken("w2")
        assert (taken.origin, taken.fence) == (task.origin, fence + 2)


async def test_a_worker_defers_in_its_own_pool_only(store: Store) -> None:
    async with task_harness(store) as books:
        with pytest.raises(Exception, match="own pool"):
            await books.defer(a_task(pool="archive"))


async def test_a_call_that_holds_its_key_hands_it_to_its_task(store: Store) -> None:
    async with task_harness(store) as books:
        once = Once(key=token(), arguments=token())
        reserved = await books.repository.keys.reserve(reserve(once))
        task = a_task()
        with_fence = once.model_copy(update={"fence": reserved.fence})
        assert await books.defer(task, once=with_fence)
        repeat = await books.repository.keys.reserve(reserve(once))
        assert (repeat.outcome, repeat.task) == (KeyOutcome.REPEAT, task.id)


def reserve(once: Once) -> Reserve:
    return Reserve(once=once, pool=POOL, lasts=60, holder=token())
