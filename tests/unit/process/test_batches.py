"""Batches form by themselves, lose nobody, and wait for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcpfleet.process.batches import Batches
from mcpfleet.store.errors import StoreBusy
from tests.kit.waiting import until

pytestmark = pytest.mark.usefixtures("jumping")


class Store:
    """Doubles numbers, and notes which came together."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = anyio.Event()
        self.begun = anyio.Event()
        self.fails: Exception | None = None

    async def double(self, numbers: Sequence[int]) -> list[int]:
        self.batches.append(list(numbers))
        self.begun.set()
        await self.open.wait()
        if self.fails is not None:
            raise self.fails
        if -1 in numbers:
            raise ValueError("minus one")
        return [2 * number for number in numbers]


async def ask(batches: Batches[int, int], number: int, told: dict[int, object]) -> None:
    try:
        told[number] = await batches.do(number)
    except Exception as error:
        told[number] = type(error)


async def test_what_comes_meanwhile_is_performed_together_up_to_the_bound() -> None:
    store, told = Store(), dict[int, object]()
    batches = Batches(store.double, 3, spoils=StoreBusy)
    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(ask, batches, number, told)
        await store.begun.wait()
        await anyio.wait_all_tasks_blocked()
        store.open.set()
    assert store.batches == [[0], [1, 2, 3], [4, 5]]
    assert told == {number: 2 * number for number in range(6)}


async def test_one_that_spoils_its_batch_fails_alone() -> None:
    store, told = Store(), dict[int, object]()
    batches = Batches(store.double, 9, spoils=StoreBusy)
    async with anyio.create_task_group() as tasks:
        for number in (1, -1, 2):
            tasks.start_soon(ask, batches, number, told)
        await store.begun.wait()
        await anyio.wait_all_tasks_blocked()
        store.open.set()
    assert told == {1: 2, -1: ValueError, 2: 4}


async def test_a_store_that_is_away_is_told_to_all_and_not_asked_for_each() -> None:
    store, told = Store(), dict[int, object]()
    store.fails = StoreBusy("away")
    store.open.set()
    batches = Batches(store.double, 9, spoils=StoreBusy)
    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(ask, batches, number, told)
    assert set(told.values()) == {StoreBusy}
    assert len(store.batches) <= 3
    store.fails = None
    assert await batches.do(5) == 10


@pytest.mark.parametrize("who", [0, 1, 2, 3])
async def test_who_is_cancelled_takes_nobody_along(who: int) -> None:
    """The first performs, the second would perform next, the others wait."""
    store, told = Store(), dict[int, object]()
    batches = Batches(store.double, 2, spoils=StoreBusy)
    scopes = [anyio.CancelScope() for _ in range(4)]

    async def within(number: int) -> None:
        with scopes[number]:
            await ask(batches, number, told)

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(within, number)
        await store.begun.wait()
        await anyio.wait_all_tasks_blocked()
        scopes[who].cancel()
        await anyio.wait_all_tasks_blocked()
        store.open.set()
    others = set(range(4)) - {who}
    assert {number: told.get(number) for number in others} == {number: 2 * number for number in others}
    assert await batches.do(7) == 14


async def test_with_patience_those_who_wait_go_beside_a_batch_that_takes_long() -> None:
    store, told = Store(), dict[int, object]()
    batches = Batches(store.double, 9, spoils=StoreBusy, patience=0.05)
    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(ask, batches, number, told)
        await until(lambda: len(store.batches) == 2)
        store.open.set()
    assert store.batches == [[0], [1, 2, 3]]
    assert told == {number: 2 * number for number in range(4)}


async def test_who_is_being_performed_waits_without_looking_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that hangs must not keep its askers busy."""
    store, told = Store(), dict[int, object]()
    batches = Batches(store.double, 9, spoils=StoreBusy, patience=0.01)
    looks = 0
    wait = batches._wait

    async def counted(place: Any) -> None:
        nonlocal looks
        looks += 1
        await wait(place)

    monkeypatch.setattr(batches, "_wait", counted)
    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(ask, batches, number, told)
        await until(lambda: len(store.batches) == 2)
        before = looks
        await anyio.sleep(0.2)
        assert looks - before <= 3, "one more look each, at most"
        store.open.set()
    assert told == {number: 2 * number for number in range(4)}


async def test_a_batch_that_takes_long_holds_up_nobody_who_comes_later() -> None:
    """They do not wait once the patience is over, and still go together with each other."""
    store, told = Store(), dict[int, object]()
    batches = Batches(store.double, 9, spoils=StoreBusy, patience=30.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, batches, 0, told)
        await store.begun.wait()
        batches._held_until = 0.0  # its patience has ended
        slow, store.open = store.open, anyio.Event()
        for number in (1, 2, 3):
            tasks.start_soon(ask, batches, number, told)
        await anyio.wait_all_tasks_blocked()
        assert store.batches == [[0], [1]]
        store.open.set()
        await until(lambda: told == {1: 2, 2: 4, 3: 6})
        assert store.batches == [[0], [1], [2, 3]]
        slow.set()
    assert told[0] == 0


async def test_an_asker_whose_time_is_over_for_asyncio_takes_nobody_along() -> None:
    """An actor keeps deadlines by asyncio's own cancellation, which passes anyio's shields: K30."""
    store, told = Store(), dict[int, object]()
    batches = Batches(store.double, 9, spoils=StoreBusy)
    asked: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(ask(batches, 0, told))
        await store.begun.wait()
        asked += [tasks.create_task(ask(batches, number, told)) for number in (1, 2, 3)]
        await anyio.wait_all_tasks_blocked()
        store.begun = anyio.Event()
        store.open.set()
        store.open = anyio.Event()
        await first
        await store.begun.wait()
        asked[0].cancel()  # it performs for all three
        await anyio.wait_all_tasks_blocked()
        asked[0].cancel()
        await anyio.wait_all_tasks_blocked()
        store.open.set()
    assert store.batches == [[0], [1, 2, 3]]
    assert told == {0: 0, 2: 4, 3: 6}
    assert asked[0].cancelled()


async def test_a_batch_that_is_cut_off_is_no_success_of_those_who_waited() -> None:
    """Its loop ends: nobody hears that a work was done that may not have been."""

    async def cut(numbers: Sequence[int]) -> list[int]:
        await anyio.lowlevel.checkpoint()
        if len(numbers) > 1:
            raise asyncio.CancelledError
        return [2 * number for number in numbers]

    told = dict[int, object]()
    batches = Batches(cut, 9, spoils=StoreBusy)
    asked = [asyncio.ensure_future(ask(batches, number, told)) for number in range(4)]
    await asyncio.wait(asked)
    assert told == {0: 0}
