"""Several replicas of the catalog side by side, on both databases: each has its own store and settings."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
import pytest
from sqlalchemy import delete
from structlog.testing import LogCapture

from mcpfleet.catalog.repository import CatalogRepository
from mcpfleet.catalog.tables import manifests
from mcpfleet.contracts.catalog import Announce
from mcpfleet.store.engine import Store, open_store
from mcpfleet.store.errors import StoreConflict
from mcpfleet.store.settings import Bounds
from tests.contract.store.announcing import announce, listed, manifest, repository, silence, snapshot
from tests.kit.logs import captured

TITLED = {"mcp": {"path": "/mcp", "title": "Titled"}}


async def sweep_at_once(*replicas: CatalogRepository) -> list[int]:
    """Let all sweep at the same time; the numbers of the new snapshots."""
    numbers: list[int] = []

    async def sweep(replica: CatalogRepository) -> None:
        swept = await replica.sweep(lost=10)
        numbers.extend(each.number for each in swept.rebuilt if each.is_new)

    async with anyio.create_task_group() as tasks:
        for replica in replicas:
            tasks.start_soon(sweep, replica)
    return sorted(numbers)


async def test_replicas_that_rebuild_at_once_make_one_number(url: str, store: Store) -> None:
    async with AsyncExitStack() as opened:
        replicas = [
            repository(
                await opened.enter_async_context(open_store(url, service="test", embedded=True, bounds=Bounds()))
            )
            for _ in range(4)
        ]
        for replica in replicas:
            await replica.sweep(lost=None)
        for version in range(1, 6):
            what = manifest("search", version=f"{version}.0.0")
            async with anyio.create_task_group() as tasks:
                for number, replica in enumerate(replicas):
                    tasks.start_soon(announce, replica, "library", f"worker-{number}", what)
            assert await sweep_at_once(*replicas) == [version]
            for replica in replicas:
                assert (await snapshot(replica)).version == f"{version}.0.0"


async def test_replicas_that_are_told_of_different_workers_at_once_lose_none(url: str, store: Store) -> None:
    async with AsyncExitStack() as opened:
        replicas = [
            repository(
                await opened.enter_async_context(open_store(url, service="test", embedded=True, bounds=Bounds()))
            )
            for _ in range(3)
        ]

        async def join(number: int, replica: CatalogRepository) -> None:
            await announce(replica, f"pool-{number}", "a", manifest(f"tool-{number}"))
            await replica.sweep(lost=None)

        async with anyio.create_task_group() as tasks:
            for number, replica in enumerate(replicas):
                tasks.start_soon(join, number, replica)
        newest = await snapshot(replicas[0])
        assert listed(newest) == {"tool-0": "pool-0", "tool-1": "pool-1", "tool-2": "pool-2"}
        assert newest.number <= 3


async def test_workers_that_bring_one_manifest_at_once_are_all_counted(url: str, store: Store) -> None:
    what = manifest("search")
    books = repository(store)

    async def bring(process: str) -> None:
        whole = Announce(process=process, digest=what.digest, manifest=what.text)
        assert not (await books.count_in("library", whole)).wanted

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(bring, f"worker-{number}")
    (tally,) = (await books.sweep(lost=None)).seen.tallies
    assert tally.workers == 8


async def test_a_sweep_while_manifests_come_and_go_fails_nobody(store: Store) -> None:
    """A manifest may be announced again in the moment in which it is forgotten."""
    books = repository(store)
    await books.sweep(lost=None)

    async def flap() -> None:
        for what in (manifest("one"), manifest("two")) * 5:
            await announce(books, "library", "a", what)
            await books.leave("library", "a")

    async def sweep() -> None:
        for _ in range(20):
            await books.sweep(lost=None)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(flap)
        tasks.start_soon(sweep)


async def test_a_row_that_another_refers_to_is_a_conflict_and_no_broken_store(store: Store) -> None:
    """A sweep leaves such a manifest alone; any other refusal is a mistake, and is told."""
    await announce(repository(store), "library", "a", manifest("one"))
    with pytest.raises(StoreConflict):
        async with store.write() as connection:
            await connection.execute(delete(manifests))


async def test_the_next_replica_goes_on_from_the_same_number(store: Store) -> None:
    first, second = repository(store), repository(store)
    await announce(first, "library", "a", manifest("search"))
    await first.sweep(lost=None)
    await second.sweep(lost=None)
    assert (await snapshot(second)).number == 1
    await announce(second, "library", "a", manifest("read"))
    await second.sweep(lost=None)
    assert (await snapshot(first)).number == 2


async def test_a_lower_revision_never_overwrites_a_higher(store: Store) -> None:
    lower, higher = repository(store, catalog_revision=1), repository(store, catalog_revision=2, endpoints=TITLED)
    await announce(lower, "library", "a", manifest("search"))
    await higher.sweep(lost=None)
    await lower.sweep(lost=None)
    await announce(lower, "library", "a", manifest("read", version="2.0.0"))
    await lower.sweep(lost=None)
    assert ((await snapshot(lower)).number, (await snapshot(lower)).title) == (1, "Titled")
    await higher.sweep(lost=None)
    newest = await snapshot(lower)
    assert (newest.number, newest.title, listed(newest)) == (2, "Titled", {"read": "library"})


async def test_a_higher_revision_takes_over_from_a_lower_that_goes_on(store: Store) -> None:
    lower, higher = repository(store), repository(store, catalog_revision=1, endpoints=TITLED)
    await announce(lower, "library", "a", manifest("search"))
    await lower.sweep(lost=None)
    await higher.sweep(lost=None)
    await lower.sweep(lost=None)
    assert ((await snapshot(lower)).number, (await snapshot(lower)).title) == (2, "Titled")


async def test_other_settings_of_equal_revision_do_not_flap(store: Store) -> None:
    """The first replica that sees a change merges it; the other finds nothing to do, also after it started again."""
    plain, titled = (
        repository(store),
        repository(store, endpoints=TITLED | {"other": {"path": "/other", "pools": ["none"]}}),
    )
    await announce(plain, "library", "a", manifest("search"))
    await plain.sweep(lost=None)
    for number in range(1, 4):
        for replica in (titled, plain, repository(store, endpoints=TITLED)):
            assert await sweep_at_once(replica) == []
        newest = await snapshot(plain)
        assert (newest.number, newest.title) == (number, "Titled" if number > 1 else None)
        await announce(plain, "library", "a", manifest("search", version=f"{number}.1"))
        assert await sweep_at_once(titled) == [number + 1]


async def test_other_settings_of_equal_revision_are_an_alarm_once(store: Store) -> None:
    capture = LogCapture()
    plain, titled = repository(store), repository(store, captured(capture), endpoints=TITLED)
    await announce(plain, "library", "a", manifest("search"))
    await titled.sweep(lost=None)
    await plain.sweep(lost=None)
    assert capture.entries == []
    await announce(plain, "library", "a", manifest("read"))
    await plain.sweep(lost=None)
    for _ in range(3):
        await titled.sweep(lost=None)
    (alarm,) = capture.entries
    assert (alarm["log_level"], alarm["endpoint"]) == ("error", "mcp")
    assert "MCPFLEET_CATALOG_REVISION" in alarm["reason"]


@pytest.mark.parametrize("leaver", ["leaves", "falls silent"])
async def test_a_sweep_by_any_replica_notices_what_another_was_told(store: Store, leaver: str) -> None:
    told, other = repository(store, linger=600), repository(store, linger=600)
    await announce(told, "library", "a", manifest("search"))
    await announce(told, "library", "b", manifest("search"))
    await announce(told, "library", "c", manifest("read"))
    await told.sweep(lost=None)
    for process in ("a", "b"):
        if leaver == "leaves":
            await told.leave("library", process)
        else:
            await silence(store, 11, process)
    await other.sweep(lost=10)
    assert listed(await snapshot(told)) == {"read": "library"}
