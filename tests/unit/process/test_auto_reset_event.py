"""The event that clears itself."""

from __future__ import annotations

import anyio

from mcpfleet.process.auto_reset_event import AutoResetEvent


async def test_news_that_come_before_the_wait_end_it_at_once_and_only_that_one() -> None:
    news = AutoResetEvent()
    news.set()
    news.set()
    assert [await news.wait(5), await news.wait(0)] == [True, False]


async def test_a_waiter_is_woken_by_news() -> None:
    news = AutoResetEvent()

    async def tell() -> None:
        await anyio.wait_all_tasks_blocked()
        news.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tell)
        with anyio.fail_after(5):
            assert await news.wait()


async def test_a_wait_ends_with_its_time() -> None:
    assert not await AutoResetEvent().wait(0.01)


async def test_what_was_cleared_wakes_nobody() -> None:
    news = AutoResetEvent()
    news.set()
    news.clear()
    assert not await news.wait(0)
