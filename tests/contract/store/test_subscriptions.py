"""Quotas of listen streams, on both databases: every count is absolute, and an edge that is silent counts no more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio
import pytest
from sqlalchemy import func, select, update

from mcpfleet.contracts.subscriptions import Count, partition_key
from mcpfleet.store.engine import Store, open_store
from mcpfleet.store.settings import Bounds
from mcpfleet.subscriptions.repository import StreamRepository
from mcpfleet.subscriptions.tables import counts, edges, partitions

ACME, OTHER = partition_key("acme"), partition_key("other")
ONE, TWO, THREE = (str(number) * 16 for number in (1, 2, 3))


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url, service="test", embedded=True, bounds=Bounds()) as opened:
        yield opened


def count(streams: int, partition: str = ACME, endpoint: str = "mcp") -> Count:
    return Count(endpoint=endpoint, partition=partition, streams=streams)


async def age(store: Store, edge: str, seconds: float) -> None:
    """Let it be so long since an edge said that it lives."""
    async with store.write() as connection:
        aged = update(edges).where(edges.c.edge == edge).values(leased_at=edges.c.leased_at - seconds)
        await connection.execute(aged)


async def rows(store: Store) -> tuple[int, int, int]:
    """How many edges, counts and partitions are kept."""
    async with store.read() as connection:
        found = [
            await connection.scalar(select(func.count()).select_from(each)) for each in (edges, counts, partitions)
        ]
    return found[0] or 0, found[1] or 0, found[2] or 0


async def opens(repository: StreamRepository, edge: str, sequence: int, held: Count, lost: float | None = 20.0) -> bool:
    return await repository.open(edge, sequence, held, limit=4, lost=lost)


@pytest.mark.rule("D7")
async def test_a_partition_has_so_many_streams_at_an_endpoint_over_all_edges(store: Store) -> None:
    repository = StreamRepository(store)
    assert await opens(repository, ONE, 1, count(3))
    assert await opens(repository, TWO, 1, count(1))
    assert not await opens(repository, TWO, 2, count(2))
    assert not await opens(repository, THREE, 1, count(1))
    assert await opens(repository, THREE, 2, count(1, OTHER))
    assert await opens(repository, THREE, 3, count(1, endpoint="other"))


async def test_asking_twice_counts_once(store: Store) -> None:
    repository = StreamRepository(store)
    assert [await opens(repository, ONE, 1, count(4)) for _ in range(3)] == [True] * 3
    assert not await opens(repository, TWO, 1, count(1))


async def test_what_closes_makes_room_and_an_older_message_that_comes_late_takes_none(store: Store) -> None:
    repository = StreamRepository(store)
    await opens(repository, ONE, 1, count(4))
    await repository.restate(ONE, 2, [count(0)])
    assert await opens(repository, ONE, 1, count(4)), "it was granted, and has closed since"
    assert await opens(repository, TWO, 1, count(4))
    await repository.restate(TWO, 1, [count(1)])  # of the same sequence: it is not newer
    assert not await opens(repository, ONE, 3, count(1))


async def test_a_dead_edges_streams_count_no_more_where_silence_counts(store: Store) -> None:
    """Blueprint, 5: within the time of a lease, by the database's clock, before anybody has swept."""
    repository = StreamRepository(store)
    await opens(repository, ONE, 1, count(4))
    await age(store, ONE, 21)
    assert not await opens(repository, TWO, 1, count(1), lost=None)
    assert await opens(repository, TWO, 2, count(4))
    assert not await opens(repository, THREE, 1, count(1))


async def test_an_edge_that_renews_its_lease_keeps_what_it_has(store: Store) -> None:
    repository = StreamRepository(store)
    await opens(repository, ONE, 1, count(4))
    await age(store, ONE, 21)
    assert await repository.lease(ONE)
    assert await repository.sweep(lost=20) == []
    assert not await opens(repository, TWO, 1, count(1))


async def test_an_edge_that_was_forgotten_hears_so_and_says_again_what_it_has(store: Store) -> None:
    repository = StreamRepository(store)
    await opens(repository, ONE, 1, count(3))
    await age(store, ONE, 21)
    assert await repository.sweep(lost=20) == [ONE]
    assert await rows(store) == (0, 0, 0)
    assert not await repository.lease(ONE)
    await repository.restate(ONE, 2, [count(3), count(1, OTHER)])
    assert await repository.lease(ONE)
    assert not await opens(repository, TWO, 1, count(2))
    assert await opens(repository, TWO, 2, count(1))


async def test_nothing_is_kept_of_partitions_without_streams(store: Store) -> None:
    repository = StreamRepository(store)
    await opens(repository, ONE, 1, count(1))
    await repository.restate(ONE, 2, [count(0)])
    await repository.sweep(lost=20)
    assert await rows(store) == (1, 1, 1), "a count of none is kept for a while, for messages that come late"
    async with store.write() as connection:
        await connection.execute(update(counts).values(changed_at=counts.c.changed_at - 61))
    await repository.sweep(lost=20)
    assert await rows(store) == (1, 0, 0)


async def test_edges_that_ask_at_once_do_not_take_the_same_place(url: str, store: Store) -> None:
    """Each replica has its own store; of twelve edges that ask at the same time four find room."""
    async with AsyncExitStack() as opened:
        replicas = [
            StreamRepository(
                await opened.enter_async_context(open_store(url, service="test", embedded=True, bounds=Bounds()))
            )
            for _ in range(3)
        ]
        granted: list[str] = []

        async def ask(edge: str, repository: StreamRepository) -> None:
            if await opens(repository, edge, 1, count(1)):
                granted.append(edge)

        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(ask, f"{number:016x}", replicas[number % 3])
    assert len(granted) == 4
