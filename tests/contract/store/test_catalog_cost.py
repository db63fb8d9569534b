"""The cost of the catalog's steady state to its database."""

from __future__ import annotations

from mcpfleet.store.engine import Store
from tests.contract.store.announcing import announce, manifest, repository, snapshot
from tests.contract.store.statements import statements


async def test_an_announcement_of_what_is_known_is_one_statement(store: Store) -> None:
    books = repository(store)
    await announce(books, "library", "a", manifest("search"))
    with statements() as seen:
        assert await books.hear("library", "a", manifest("search").digest)
    assert seen == ["UPDATE"]


async def test_a_sweep_writes_and_locks_nothing_while_nothing_changed(store: Store) -> None:
    books = repository(store)
    await announce(books, "library", "a", manifest("search"))
    await books.sweep(lost=10)
    await books.hear("library", "a", manifest("search").digest)
    with statements() as seen:
        swept = await books.sweep(lost=10)
    assert set(seen) == {"SELECT"}
    assert swept.rebuilt == ()


async def test_a_snapshot_that_was_read_once_is_not_read_again(store: Store) -> None:
    books = repository(store)
    await announce(books, "library", "a", manifest("search"))
    await books.sweep(lost=None)
    first = await snapshot(books)
    with statements() as seen:
        assert await snapshot(books) is first
    assert seen == ["SELECT"]
