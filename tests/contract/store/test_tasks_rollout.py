"""Tasks whose version of a tool goes while they wait, on both databases (K21)."""

from __future__ import annotations

import pytest

from mcpfleet.contracts.manifest import digest_of
from mcpfleet.contracts.tasks import Status
from mcpfleet.store.engine import Store
from mcpfleet.tasks.tables import served, states
from tests.contract.store.task_harness import REPORT, TaskHarness, age, column, task_harness

NEWER = digest_of(b"newer")


async def gone(books: TaskHarness, *, heard: str = NEWER) -> None:
    """Let so much time pass that a version which says nothing is gone, while another one is heard."""
    await books.serve(heard)
    await age(books.store, served, "since", books.settings.task_gone + 1)
    await age(books.store, served, "seen_at", books.settings.task_gone + 1)
    async with books.store.write() as connection:
        from sqlalchemy import update

        from mcpfleet.store.sql import now

        await connection.execute(update(served).where(served.c.definition == heard).values(seen_at=now()))


@pytest.mark.rule("K21")
async def test_what_waits_for_a_version_that_is_gone_goes_on_by_the_newer_one(store: Store) -> None:
    async with task_harness(store) as books:
        await books.serve(REPORT)
        task = await books.made()
        await gone(books)
        assert (await books.claim(definitions=(NEWER,))).tasks == ()
        assert await books.serve(NEWER) == 1
        (taken,) = (await books.claim(definitions=(NEWER,))).tasks
        assert (taken.id, taken.definition, taken.attempts) == (task.id, NEWER, 0)
        assert await books.settle(taken)
        assert (await books.seen(task.id)).version == 2, "its readers saw no difference"


@pytest.mark.rule("K21")
async def test_nothing_is_taken_from_a_version_that_is_heard(store: Store) -> None:
    async with task_harness(store) as books:
        await books.serve(REPORT)
        await books.made()
        await gone(books)
        await books.serve(REPORT)
        assert await books.serve(NEWER) == 0


@pytest.mark.rule("K21")
async def test_after_an_outage_every_version_has_its_time_to_be_heard(store: Store) -> None:
    async with task_harness(store) as books:
        await books.serve(REPORT)
        await books.serve(NEWER)
        await books.made()
        await age(store, served, "since", 1000)
        await age(store, served, "seen_at", books.settings.task_gone + 1)
        assert await books.serve(NEWER) == 0, "it was not heard itself"
        await books.serve(REPORT)
        await age(store, served, "since", books.settings.task_gone + 1)
        assert await books.serve(NEWER) == 0


@pytest.mark.rule("K21")
@pytest.mark.parametrize("state", ["held", "waits for input"])
async def test_what_a_worker_holds_or_a_client_must_answer_is_left_alone(store: Store, state: str) -> None:
    async with task_harness(store) as books:
        task = await books.running()
        if state == "waits for input":
            await books.ask(task, "month")
        await gone(books)
        assert await books.serve(NEWER) == 0
        assert await column(store, task.id, "definition") == REPORT
        if state == "waits for input":
            await books.update(task.id, {"month": "{}"})
            assert await books.serve(NEWER) == 1, "once it is answered it waits for a worker"
            (taken,) = (await books.claim(definitions=(NEWER,))).tasks
            assert [each.key for each in taken.answers] == ["month"]


@pytest.mark.rule("K21")
async def test_other_tools_and_other_pools_are_none_of_its_business(store: Store) -> None:
    async with task_harness(store) as books:
        await books.made(pool="archive")
        await books.made(name="other")
        await gone(books)
        assert await books.serve(NEWER) == 0


@pytest.mark.rule("K21")
async def test_a_tool_that_its_pool_has_no_more_ends_its_tasks_and_says_so(store: Store) -> None:
    async with task_harness(store) as books:
        await books.serve(REPORT)
        task = await books.made()
        other = digest_of(b"other")
        await books.serve(other, name="other")
        removed = books.settings.task_removed + 1
        assert await books.repository.tool_reports.end_removed() == []
        for table, moment in ((served, "since"), (served, "seen_at"), (states, "ready_at")):
            await age(store, table, moment, removed)
        assert await books.repository.tool_reports.end_removed() == [], (
            "nobody of the pool is heard: this may be an outage"
        )
        await books.serve(other, name="other")
        assert await books.repository.tool_reports.end_removed() == [], "nor has it been heard for long"
        await age(store, served, "since", removed)
        (change,) = await books.repository.tool_reports.end_removed()
        assert change.ended == (Status.FAILED, "no_worker")
        view = await books.seen(task.id)
        assert "no longer have its tool" in str(view.end)
        assert "no longer have its tool" in str(view.message)


async def test_versions_that_were_not_heard_for_long_are_forgotten(store: Store) -> None:
    async with task_harness(store) as books:
        await books.serve(REPORT)
        await books.repository.tool_reports.forget()
        async with store.read() as connection:
            assert len((await connection.execute(served.select())).all()) == 1
        await age(store, served, "seen_at", 2 * books.settings.task_removed + 1)
        await books.repository.tool_reports.forget()
        async with store.read() as connection:
            assert (await connection.execute(served.select())).all() == []
