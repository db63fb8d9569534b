"""Rate limits in the store: never more than the limit in a window, whoever asks, and once for each question."""

from __future__ import annotations

import random
import secrets
from collections import Counter
from typing import Any

import anyio
import pytest
from sqlalchemy import func, select, update

from mcpfleet.authorization.repository import RevocationRepository
from mcpfleet.authorization.tables import takings, windows
from mcpfleet.authorization.windows import take, take_all
from mcpfleet.contracts.authorization import TakeFromLimit, TakeTokens, TokensGranted, TokensWanted
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


ASKER = "1" * 16


def wanted(wanted: int = 0, **changes: Any) -> TokensWanted:
    return TokensWanted(**{"key": KEY, "limit": 10, "seconds": LONG, "wanted": wanted, **changes})


def tokens(*limits: TokensWanted, number: int = 0, asker: str = ASKER) -> TakeTokens:
    return TakeTokens(id=f"{asker}{number:016x}", limits=limits)


async def ask(store: Store, *limits: TokensWanted, number: int = 0, asker: str = ASKER) -> list[TokensGranted]:
    return list((await take_all(store, tokens(*limits, number=number, asker=asker))).limits)


async def used(store: Store) -> dict[str, int]:
    async with store.read() as connection:
        return {row.key: row.used for row in await connection.execute(select(windows.c.key, windows.c.used))}


@pytest.mark.rule("M82")
async def test_many_limits_are_taken_from_together_each_as_if_alone(store: Store) -> None:
    keys = [f"{number:032x}" for number in range(64)]
    for number in range(2):
        granted = await ask(store, *(wanted(3, key=key, limit=5) for key in reversed(keys)), number=number)
        assert [each.granted for each in granted] == [[3, 2][number]] * 64
        assert {each.left for each in granted} == {[2, 0][number]}
        assert all(0 < each.rest <= LONG for each in granted)
    assert await used(store) == dict.fromkeys(keys, 5)


@pytest.mark.rule("M82")
async def test_edges_of_both_releases_share_one_window(store: Store) -> None:
    assert (await take(store, question(4))).granted == 4
    (granted,) = await ask(store, wanted(4))
    assert (granted.granted, granted.left) == (4, 2)
    assert (await take(store, question(4))).granted == 2
    (granted,) = await ask(store, wanted(4), number=1)
    assert (granted.granted, granted.left) == (0, 0)


@pytest.mark.rule("M83")
@pytest.mark.parametrize(("limit", "asked", "ahead", "granted"), [
    (12, 1, 1_000, 1), (64, 1, 1_000, 1), (65, 1, 1_000, 2), (6_400, 0, 1_000, 100), (6_400, 3_200, 10, 3_210),
    (6_400, 6_399, 10, 6_399),
])  # fmt: skip
async def test_what_is_ahead_is_granted_from_a_small_share_of_what_is_left(
    store: Store, limit: int, asked: int, ahead: int, granted: int
) -> None:
    (found,) = await ask(store, wanted(asked, limit=limit, ahead=ahead))
    assert (found.granted, found.left) == (granted, limit - granted)


@pytest.mark.rule("M84")
async def test_what_is_given_back_is_granted_again_in_its_window_alone(store: Store) -> None:
    (granted,) = await ask(store, wanted(10))
    assert granted.window is not None
    await ask(store, wanted(back=3, window=granted.window - 1), wanted(0, key="b" * 32), number=1)
    assert (await used(store))[KEY] == 10
    (after,) = await ask(store, wanted(back=3, window=granted.window), number=2)
    assert (after.left, (await used(store))[KEY]) == (3, 7)
    assert (await take(store, question(5))).granted == 3


@pytest.mark.rule("M84")
async def test_no_more_is_given_back_than_was_taken(store: Store) -> None:
    (granted,) = await ask(store, wanted(4))
    (after,) = await ask(store, wanted(back=1_000, window=granted.window), number=1)
    assert (after.left, await used(store)) == (10, {KEY: 0})


@pytest.mark.rule("M84")
async def test_tokens_of_a_window_that_is_over_are_not_given_to_the_next(store: Store) -> None:
    (granted,) = await ask(store, wanted(10))
    async with store.write() as connection:
        await connection.execute(update(windows).values(number=windows.c.number - 1, ends_at=windows.c.ends_at - LONG))
    (after,) = await ask(store, wanted(2), number=1)
    assert (after.granted, after.left, after.window) == (2, 8, granted.window)
    assert granted.window is not None
    await ask(store, wanted(back=2, window=granted.window - 1), number=2)
    assert await used(store) == {KEY: 2}


@pytest.mark.rule("M82")
async def test_a_question_that_comes_again_does_what_it_does_once(store: Store) -> None:
    first = tokens(wanted(3), wanted(2, key="b" * 32))
    told = await take_all(store, first)
    again = await take_all(store, first)
    assert [(each.granted, each.window, each.left) for each in again.limits] == [
        (each.granted, each.window, each.left) for each in told.limits
    ]
    back = tokens(wanted(back=2, window=told.limits[0].window), number=1)
    for _ in range(3):
        await take_all(store, back)
    assert await used(store) == {KEY: 1, "b" * 32: 2}


@pytest.mark.rule("M82")
async def test_a_question_that_is_late_does_nothing(store: Store) -> None:
    """One copy waits in a process that stands still, the other one is answered, and its asker goes on."""
    (granted,) = await ask(store, wanted(8))
    late = tokens(wanted(back=4, window=granted.window), number=1)
    await take_all(store, late)
    assert [each.granted for each in await ask(store, wanted(4), number=2)] == [4]
    (told,) = (await take_all(store, late)).limits
    assert (told.granted, await used(store)) == (0, {KEY: 8})
    await ask(store, wanted(1), asker="2" * 16)
    assert await used(store) == {KEY: 9}, "another edge's numbers are its own"


@pytest.mark.rule("M82")
async def test_the_same_question_in_two_processes_at_once_does_it_once(store: Store) -> None:
    granted = list[int]()

    async def repeat() -> None:
        granted.extend(each.granted for each in await ask(store, wanted(3), wanted(3, key="b" * 32)))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(repeat)
    assert granted == [3] * 10
    assert await used(store) == {KEY: 3, "b" * 32: 3}


LIMITS = {f"{number:032x}": limit for number, limit in enumerate((12, 100, 1_000, 5_000))}


class Asker:
    """An edge that takes, gives back, repeats itself, and has messages that are late."""

    def __init__(self, store: Store, name: str, chance: random.Random) -> None:
        self.store, self.name, self.chance = store, name, chance
        self.number = 0
        self.held: Counter[str] = Counter()
        self.window: int | None = None
        self.sent: list[TakeTokens] = []

    async def run(self, turns: int) -> None:
        for _ in range(turns):
            if self.sent and self.chance.random() < 0.2:
                await take_all(self.store, self.chance.choice(self.sent))  # what is answered is of no use to anybody
            elif self.chance.random() < 0.2:
                key = self.chance.choice(list(LIMITS))
                held = TakeFromLimit(
                    key=key,
                    limit=LIMITS[key],
                    seconds=LONG,
                    wanted=self.chance.randint(1, 40),
                    id=secrets.token_hex(16),
                )
                self.held[key] += (await take(self.store, held)).granted
            else:
                await self._ask()

    async def _ask(self) -> None:
        self.number += 1
        keys = self.chance.sample(list(LIMITS), self.chance.randint(1, len(LIMITS)))
        question = tokens(*map(self._limit, keys), number=self.number, asker=self.name)
        self.sent.append(question)
        for each in question.limits:
            self.held[each.key] -= each.back
        answers = list[list[TokensGranted]]()

        async def send() -> None:
            answers.append(list((await take_all(self.store, question)).limits))

        async with anyio.create_task_group() as tasks:
            for _ in range(self.chance.choice((1, 1, 2))):
                tasks.start_soon(send)
        for limit, *granted in zip(question.limits, *answers, strict=True):
            assert len({each.granted for each in granted}) == 1, "it is answered as it was"
            self.held[limit.key] += granted[0].granted
            self.window = granted[0].window

    def _limit(self, key: str) -> TokensWanted:
        if self.window is not None and self.held[key] and self.chance.random() < 0.4:
            back = self.chance.randint(1, self.held[key])
            return wanted(key=key, limit=LIMITS[key], back=back, window=self.window)
        return wanted(self.chance.randint(0, 60), ahead=self.chance.randint(0, 60), key=key, limit=LIMITS[key])


@pytest.mark.rule("M82")
async def test_what_edges_hold_is_what_the_window_has_granted_and_never_more(store: Store) -> None:
    """Many at once, by chance: takings, tokens given back, repeats, late messages, edges of both releases."""
    chance = random.Random(82)
    askers = [Asker(store, secrets.token_hex(8), random.Random(chance.random())) for _ in range(6)]
    async with anyio.create_task_group() as tasks:
        for asker in askers:
            tasks.start_soon(asker.run, 25)
    held = sum((asker.held for asker in askers), Counter[str]())
    assert {key: held[key] for key in LIMITS} == {key: (await used(store)).get(key, 0) for key in LIMITS}
    assert all(held[key] <= limit for key, limit in LIMITS.items())


async def test_many_windows_that_are_long_over_are_pruned_in_short_transactions(store: Store) -> None:
    async with store.write() as connection:
        rows = [{"key": f"{n:032x}", "number": 1, "used": 1, "granted": 1, "ends_at": 1.0} for n in range(2_500)]
        await connection.execute(windows.insert(), rows)
        noted = [{"key": row["key"], "asker": ASKER, "id": "0" * 32, "granted": 1, "ends_at": 1.0} for row in rows]
        await connection.execute(takings.insert(), noted)
    await ask(store, wanted(1))
    await RevocationRepository(store).prune(1e9)
    async with store.read() as connection:
        for table in (windows, takings):
            assert await connection.scalar(select(func.count()).select_from(table)) == 1


async def test_windows_that_are_long_over_are_pruned(store: Store) -> None:
    await take(store, question())
    await RevocationRepository(store).prune(1e9)
    async with store.read() as connection:
        assert await connection.scalar(select(windows.c.used)) == 1
    async with store.write() as connection:
        for table in (windows, takings):
            await connection.execute(update(table).values(ends_at=table.c.ends_at - LONG - 61))
    await RevocationRepository(store).prune(1e9)
    async with store.read() as connection:
        assert (await connection.execute(select(windows.c.key).union_all(select(takings.c.key)))).all() == []
