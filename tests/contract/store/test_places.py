"""Places of workers, on both databases: a key has one holder, until its worker's lease ends (B16)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest
from sqlalchemy import func, select, update

from mcpfleet.contracts import places as contract
from mcpfleet.contracts.places import HeldPlace, HoldPlaces, PlacesHeld
from mcpfleet.store.engine import Store, open_store
from mcpfleet.store.settings import Bounds
from mcpfleet.subscriptions.places import PlaceRepository
from mcpfleet.subscriptions.tables import place_workers, places

ONE, TWO = "1" * 16, "2" * 16
KEY, OTHER = "a" * 32, "b" * 32
POOL = "memory"


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url, service="test", embedded=True, bounds=Bounds()) as opened:
        yield opened


async def take(store: Store, worker: str, key: str = KEY, claim: str = "c" * 32, pool: str = POOL) -> PlacesHeld:
    return await PlaceRepository(store).hold(pool, HoldPlaces(worker=worker, take=HeldPlace(key=key, claim=claim)))


async def free(store: Store, worker: str, *claims: str) -> PlacesHeld:
    freed = tuple(HeldPlace(key=KEY, claim=claim) for claim in claims)
    return await PlaceRepository(store).hold(POOL, HoldPlaces(worker=worker, free=freed))


async def age(store: Store, worker: str, seconds: float) -> None:
    """Let it be so long since a worker said that it lives."""
    async with store.write() as connection:
        aged = update(place_workers).where(place_workers.c.worker == worker)
        await connection.execute(aged.values(leased_at=place_workers.c.leased_at - seconds))


@pytest.mark.rule("B16")
async def test_a_place_is_its_first_workers_and_others_hear_whose(store: Store) -> None:
    assert (await take(store, ONE)).holder == ONE
    assert (await take(store, TWO)).holder == ONE
    assert (await take(store, ONE)).holder == ONE
    assert (await take(store, TWO, OTHER)).holder == TWO
    assert (await take(store, TWO, pool="other")).holder == TWO


@pytest.mark.rule("B16")
async def test_of_workers_that_want_one_place_together_one_has_it(store: Store) -> None:
    holders: list[str | None] = []

    async def want(worker: str) -> None:
        holders.append((await take(store, worker)).holder)

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(want, str(number) * 16)
    assert len(set(holders) - {None}) == 1


@pytest.mark.rule("B16")
async def test_a_place_is_taken_over_once_its_workers_lease_has_ended(store: Store) -> None:
    await take(store, ONE)
    await age(store, ONE, 9)
    assert (await take(store, TWO)).holder == ONE
    await age(store, ONE, 2)
    assert (await take(store, TWO)).holder == TWO
    assert (await take(store, ONE)).holder == TWO


@pytest.mark.rule("B16")
async def test_a_worker_whose_lease_had_ended_hears_that_nothing_is_its_own(store: Store) -> None:
    assert not (await take(store, ONE)).is_known
    assert (await free(store, ONE)).is_known
    await age(store, ONE, 11)
    assert not (await free(store, ONE)).is_known
    assert (await take(store, TWO)).holder == TWO


@pytest.mark.rule("B16")
async def test_a_late_message_frees_no_place_that_was_taken_again(store: Store) -> None:
    await take(store, ONE, claim="c" * 32)
    await take(store, ONE, claim="d" * 32)
    await free(store, ONE, "c" * 32)
    assert (await take(store, TWO)).holder == ONE
    await free(store, TWO, "d" * 32)
    assert (await take(store, TWO)).holder == ONE
    await free(store, ONE, "d" * 32)
    assert (await take(store, TWO)).holder == TWO


@pytest.mark.rule("B16")
async def test_a_pool_has_so_many_places(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpfleet.subscriptions.places.MOST_PLACES", 1)
    await take(store, ONE)
    assert (await take(store, TWO, OTHER)).holder is None
    assert (await take(store, TWO, OTHER, pool="other")).holder == TWO


async def test_rows_of_workers_that_ended_long_ago_are_deleted(store: Store) -> None:
    await take(store, ONE)
    await take(store, TWO, OTHER)
    await age(store, ONE, contract.LEASE + 100)
    await PlaceRepository(store).sweep()
    async with store.read() as connection:
        assert await connection.scalar(select(func.count()).select_from(places)) == 1
        assert await connection.scalar(select(place_workers.c.worker)) == TWO
