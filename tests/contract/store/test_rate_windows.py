"""Rate limits in the store: never more than the limit in a window, whoever asks, and once for each question."""

from __future__ import annotations

import secrets
from typing import Any

import anyio
from sqlalchemy import select, update

from mcpfleet.authorization.ledger import Ledger
from mcpfleet.authorization.tables import takings, windows
from mcpfleet.authorization.windows import take
from mcpfleet.contracts.authorization import TakeFromLimit
from mcpfleet.store.engine import Store

KEY = "a" * 32
LONG = 10_000.0
"""A window that ends during no test, or during one in a hundred days of tests."""


def question(wanted: int = 1, **changes: Any) -> TakeFromLimit:
    own = {"key": KEY, "limit": 10, "seconds": LONG, "wanted": wanted, "id": secrets.token_hex(16)}
    return TakeFromLimit(**{**own, **changes})


async def test_what_is_left_is_granted_and_no_more(store: Store) -> None:
    assert [(await take(store, question(4))).granted for _ in range(4)] == [4, 4, 2, 0]


async def test_the_rest_of_the_window_is_told(store: Store) -> None:
    taken = await take(store, question())
    assert 0 < taken.rest <= LONG


async def test_more_than_the_limit_is_never_granted(store: Store) -> None:
    assert (await take(store, question(500))).granted == 10


async def test_limits_do_not_touch_each_other(store: Store) -> None:
    await take(store, question(10))
    assert (await take(store, question(10, key="b" * 32))).granted == 10


async def test_a_new_window_begins_anew(store: Store) -> None:
    await take(store, question(10))
    async with store.write() as connection:
        await connection.execute(update(windows).values(number=windows.c.number - 1))
    assert (await take(store, question(7))).granted == 7
    assert (await take(store, question(7))).granted == 3


async def test_a_question_that_waited_from_the_window_before_counts_in_this_one(store: Store) -> None:
    await take(store, question(4))
    async with store.write() as connection:
        await connection.execute(update(windows).values(number=windows.c.number + 1))
    assert (await take(store, question(10))).granted == 6


async def test_asking_twice_takes_once_whatever_others_took_meanwhile(store: Store) -> None:
    mine = question(3, id="1" * 16 + "a" * 16)
    assert (await take(store, mine)).granted == 3
    assert (await take(store, question(5, id="2" * 16 + "b" * 16))).granted == 5
    assert (await take(store, mine)).granted == 3
    assert (await take(store, question(5))).granted == 2


async def test_the_same_question_at_once_takes_once(store: Store) -> None:
    mine, granted = question(3), list[int]()

    async def ask() -> None:
        granted.append((await take(store, mine)).granted)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    assert granted == [3] * 5
    async with store.read() as connection:
        assert await connection.scalar(select(windows.c.used)) == 3


async def test_many_at_once_get_the_limit_and_no_more(store: Store) -> None:
    granted = list[int]()

    async def ask() -> None:
        granted.append((await take(store, question(3, limit=50))).granted)

    async with anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(ask)
    assert sum(granted) == 50


async def test_windows_that_are_long_over_are_pruned(store: Store) -> None:
    await take(store, question())
    await Ledger(store).prune(1e9)
    async with store.read() as connection:
        assert await connection.scalar(select(windows.c.used)) == 1
    async with store.write() as connection:
        for table in (windows, takings):
            await connection.execute(update(table).values(ends_at=table.c.ends_at - LONG - 61))
    await Ledger(store).prune(1e9)
    async with store.read() as connection:
        assert (await connection.execute(select(windows.c.key).union_all(select(takings.c.key)))).all() == []
