"""From announcements to numbered snapshots, on both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from mcpfleet.bus.errors import Failed
from mcpfleet.catalog.tables import manifests
from mcpfleet.contracts.catalog import Announce, Announced
from mcpfleet.store.engine import Store
from tests.contract.store.announcing import (
    age_emptiness,
    announce,
    listed,
    manifest,
    repository,
    silence,
    snapshot,
)

SEARCH = manifest("search")
COUNTED = Announced()
SEARCH_AND_READ = manifest("search", "read", version="2.0.0")


async def test_an_endpoint_that_no_pool_has_served_has_no_snapshot_yet(store: Store) -> None:
    books = repository(store)
    await books.sweep(lost=None)
    answer = await books.snapshot("mcp", None)
    assert (answer.number, answer.snapshot) == (0, None)


async def test_an_announcement_becomes_a_snapshot(store: Store) -> None:
    books = repository(store)
    await books.sweep(lost=None)
    await announce(books, "library", "a", SEARCH)
    (rebuilt,) = (await books.sweep(lost=None)).rebuilt
    assert (rebuilt.endpoint, rebuilt.number, rebuilt.is_new) == ("mcp", 1, True)
    newest = await snapshot(books)
    assert listed(newest) == {"search": "library"}
    assert newest.listed[0].digest == SEARCH.named[0].digest
    assert (newest.name, newest.version) == ("library", "1.0.0")


async def test_the_manifest_is_wanted_once(store: Store) -> None:
    books = repository(store)
    wanted = await books.count_in("library", Announce(process="a", digest=SEARCH.digest))
    assert wanted == Announced(wanted=True)
    whole = Announce(process="a", digest=SEARCH.digest, manifest=SEARCH.text)
    assert await books.count_in("library", whole) == COUNTED
    assert await books.count_in("library", Announce(process="b", digest=SEARCH.digest)) == COUNTED


async def test_the_manifests_exact_text_is_kept(store: Store) -> None:
    books = repository(store)
    await announce(books, "library", "a", SEARCH)
    async with store.read() as connection:
        assert await connection.scalar(select(manifests.c.body)) == SEARCH.text


async def test_the_number_grows_once_a_change_and_not_without_one(store: Store) -> None:
    books = repository(store)
    await announce(books, "library", "a", SEARCH)
    await books.sweep(lost=None)
    for process in ("a", "b", "c"):
        await announce(books, "library", process, SEARCH)
        await books.sweep(lost=None)
    assert (await snapshot(books)).number == 1
    for process in ("a", "b", "c"):
        await announce(books, "library", process, SEARCH_AND_READ)
        await books.sweep(lost=None)
    assert (await snapshot(books)).number == 2
    assert listed(await snapshot(books)) == {"read": "library", "search": "library"}


async def test_no_body_comes_back_while_the_known_number_is_the_newest(store: Store) -> None:
    books = repository(store)
    await announce(books, "library", "a", SEARCH)
    await books.sweep(lost=None)
    known = await books.snapshot("mcp", 1)
    assert (known.number, known.snapshot) == (1, None)
    behind = await books.snapshot("mcp", 0)
    assert behind.snapshot is not None


async def test_an_endpoint_that_never_was_is_unknown(store: Store) -> None:
    with pytest.raises(Failed) as raised:
        await repository(store).snapshot("nowhere", None)
    assert raised.value.kind == "unknown"


async def test_a_pool_that_loses_its_workers_lingers_and_then_goes(store: Store) -> None:
    books = repository(store, linger=600)
    await announce(books, "library", "a", SEARCH)
    await books.sweep(lost=None)
    await books.leave("library", "a")
    await books.sweep(lost=None)
    await age_emptiness(store, 599)
    await books.sweep(lost=None)
    assert listed(await snapshot(books)) == {"search": "library"}
    await age_emptiness(store, 2)
    await books.sweep(lost=None)
    newest = await snapshot(books)
    assert (newest.number, listed(newest)) == (2, {})


async def test_a_pool_that_comes_back_while_it_lingers_changes_nothing(store: Store) -> None:
    """A deploy that stops all workers before it starts new ones does not make lists flap."""
    books = repository(store, linger=600)
    await announce(books, "library", "a", SEARCH)
    await books.sweep(lost=None)
    await books.leave("library", "a")
    await books.sweep(lost=None)
    await age_emptiness(store, 500)
    await announce(books, "library", "b", SEARCH)
    await books.sweep(lost=None)
    await age_emptiness(store, 500)
    await books.sweep(lost=None)
    newest = await snapshot(books)
    assert (newest.number, listed(newest)) == (1, {"search": "library"})


async def test_a_silent_worker_counts_no_longer_once_silence_counts(store: Store) -> None:
    books = repository(store)
    await announce(books, "library", "old", SEARCH)
    await announce(books, "library", "older", SEARCH)
    await announce(books, "library", "new", SEARCH_AND_READ)
    await books.sweep(lost=None)
    assert listed(await snapshot(books)) == {"search": "library"}
    await silence(store, 60, "old", "older")
    await books.sweep(lost=None)
    assert listed(await snapshot(books)) == {"search": "library"}
    await books.sweep(lost=10)
    assert listed(await snapshot(books)) == {"read": "library", "search": "library"}


async def test_a_worker_that_was_given_up_is_counted_in_when_it_is_heard_again(store: Store) -> None:
    books = repository(store)
    await announce(books, "library", "a", SEARCH)
    await books.sweep(lost=None)
    await silence(store, 60, "a")
    await books.sweep(lost=10)
    assert not await books.hear("library", "a", SEARCH.digest)
    await announce(books, "library", "a", SEARCH)
    assert await books.hear("library", "a", SEARCH.digest)


async def test_an_announcement_after_its_worker_left_counts_as_long_as_silence_may_last(
    store: Store,
) -> None:
    """Two replicas may take the last announcement and the leave in the wrong order."""
    books = repository(store)
    await announce(books, "library", "a", SEARCH)
    await books.leave("library", "a")
    await announce(books, "library", "a", SEARCH)
    await silence(store, 9, "a")
    assert [tally.workers for tally in (await books.sweep(lost=10)).seen.tallies] == [1]
    await silence(store, 1.5, "a")
    await books.sweep(lost=10)
    assert (await books.sweep(lost=10)).seen.tallies == ()
    assert not await books.hear("library", "a", SEARCH.digest)


async def test_a_name_stays_with_the_pool_that_claimed_it_first(store: Store) -> None:
    books = repository(store)
    await announce(books, "library", "a", manifest("search"))
    await books.sweep(lost=None)
    await announce(books, "archive", "b", manifest("search", "scan", app="archive"))
    (rebuilt,) = (await books.sweep(lost=None)).rebuilt
    assert [(refusal.pool, refusal.name) for refusal in rebuilt.refusals] == [("archive", "search")]
    assert listed(await snapshot(books)) == {"scan": "archive", "search": "library"}
    await books.leave("library", "a")
    await books.sweep(lost=None)
    assert listed(await snapshot(books))["search"] == "library"
    await books.withdraw("library")
    assert listed(await snapshot(books)) == {"scan": "archive", "search": "archive"}


async def test_withdrawing_ends_a_lingering_pool_at_once(store: Store) -> None:
    books = repository(store)
    await announce(books, "library", "a", SEARCH_AND_READ)
    await books.sweep(lost=None)
    await books.leave("library", "a")
    await books.sweep(lost=None)
    withdrawn, rebuilt = await books.withdraw("library")
    assert (withdrawn.definitions, withdrawn.workers) == (2, 0)
    assert [(each.endpoint, each.number, each.is_new) for each in rebuilt] == [("mcp", 2, True)]
    assert listed(await snapshot(books)) == {}
    again, rebuilt = await books.withdraw("library")
    assert (again.definitions, rebuilt) == (0, [])


async def test_withdrawing_what_never_was_does_nothing(store: Store) -> None:
    books = repository(store)
    await books.sweep(lost=None)
    withdrawn, rebuilt = await books.withdraw("library")
    assert (withdrawn.definitions, withdrawn.workers, rebuilt) == (0, 0, [])


async def test_a_pool_with_workers_is_not_withdrawn(store: Store) -> None:
    books = repository(store)
    await announce(books, "library", "a", SEARCH)
    await books.sweep(lost=None)
    withdrawn, rebuilt = await books.withdraw("library")
    assert (withdrawn.definitions, withdrawn.workers, rebuilt) == (0, 1, [])
    assert listed(await snapshot(books)) == {"search": "library"}


async def test_manifests_go_with_the_last_worker_and_listing(store: Store) -> None:
    books = repository(store)
    await announce(books, "library", "a", SEARCH)
    await books.sweep(lost=None)
    await announce(books, "library", "a", SEARCH_AND_READ)
    await books.sweep(lost=None)
    async with store.read() as connection:
        assert (await connection.scalars(select(manifests.c.digest))).all() == [SEARCH_AND_READ.digest]
    await books.leave("library", "a")
    await books.sweep(lost=None)
    await books.withdraw("library")
    async with store.read() as connection:
        assert await connection.scalar(select(func.count()).select_from(manifests)) == 0


async def test_one_pool_cannot_fill_the_catalog_with_workers(store: Store) -> None:
    books = repository(store, pool_workers=2)
    await announce(books, "library", "a", SEARCH)
    await announce(books, "library", "b", SEARCH)
    with pytest.raises(Failed, match="MCPFLEET_POOL_WORKERS") as raised:
        await announce(books, "library", "c", SEARCH)
    assert raised.value.kind == "refused"
    await announce(books, "library", "a", SEARCH_AND_READ)
    await announce(books, "archive", "c", SEARCH)


async def test_one_pool_cannot_fill_the_catalog_with_manifests(store: Store) -> None:
    books = repository(store, pool_manifests=2)
    await announce(books, "library", "a", manifest("one"))
    await announce(books, "library", "b", manifest("two"))
    with pytest.raises(Failed, match="MCPFLEET_POOL_MANIFESTS"):
        await announce(books, "library", "c", manifest("three"))
    await announce(books, "library", "c", manifest("two"))
    await announce(books, "library", "a", manifest("three"))
    async with store.read() as connection:
        assert await connection.scalar(select(func.count()).select_from(manifests)) == 3


async def test_endpoints_show_the_pools_that_their_settings_admit(store: Store) -> None:
    books = repository(
        store,
        endpoints={
            "all": {"path": "/all"},
            "books": {"path": "/books", "pools": ["library"], "names": {"library": ["sea*"]}},
        },
    )
    await announce(books, "library", "a", SEARCH_AND_READ)
    await announce(books, "archive", "b", manifest("scan"))
    await books.sweep(lost=None)
    assert listed(await snapshot(books, "all")) == {"read": "library", "scan": "archive", "search": "library"}
    assert listed(await snapshot(books, "books")) == {"search": "library"}
    await announce(books, "archive", "b", manifest("scan", "copy"))
    await books.sweep(lost=None)
    assert (await snapshot(books, "all")).number == 2
    assert (await snapshot(books, "books")).number == 1


async def test_a_pool_that_does_not_fit_into_the_snapshot_gives_way_to_those_before_it(store: Store) -> None:
    books = repository(store, snapshot_limit=len(SEARCH.definitions[0]) + 200)
    await announce(books, "library", "a", SEARCH)
    await books.sweep(lost=None)
    await announce(books, "archive", "b", manifest("scan"))
    (rebuilt,) = (await books.sweep(lost=None)).rebuilt
    assert "MCPFLEET_SNAPSHOT_LIMIT" in rebuilt.refusals[0].reason
    assert listed(await snapshot(books)) == {"search": "library"}


async def test_a_pool_that_grows_evicts_none_that_came_after_it(store: Store) -> None:
    books = repository(store, snapshot_limit=2 * len(SEARCH.definitions[0]) + 300)
    await announce(books, "library", "a", SEARCH)
    await announce(books, "archive", "b", manifest("scan"))
    await books.sweep(lost=None)
    assert listed(await snapshot(books)) == {"scan": "archive", "search": "library"}
    await announce(books, "library", "a", SEARCH_AND_READ)
    (rebuilt,) = (await books.sweep(lost=None)).rebuilt
    assert [(refusal.pool, refusal.name) for refusal in rebuilt.refusals] == [("library", "read")]
    assert listed(await snapshot(books)) == {"scan": "archive", "search": "library"}
