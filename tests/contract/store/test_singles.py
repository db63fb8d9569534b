"""Single statements straight on PostgreSQL: what ends a connection, and what does not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.store.engine import open_store
from mcpfleet.store.errors import StoreBusy, StoreRefused, StoreUnreachable
from mcpfleet.store.settings import Bounds
from mcpfleet.store.singles import SingleStatements
from tests.kit.postgres import Postgres


@pytest.fixture
async def address(postgres: Postgres) -> AsyncIterator[str]:
    async with postgres.migrated() as url:
        yield url


async def connections(postgres: Postgres, url: str) -> int:
    """How many connections this test's service holds."""
    connection = await asyncpg.connect(url)
    try:
        found: int = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mcpfleet-singles' AND datname = "
            "current_database()"
        )
        return found
    finally:
        await connection.close()


def straight(found: SingleStatements | None) -> SingleStatements:
    assert found is not None
    return found


async def test_a_statement_commits_by_itself_and_its_rows_have_attributes(address: str) -> None:
    async with open_store(address, service="singles", bounds=Bounds(), singles=True) as store:
        singles = straight(store.singles)
        await singles.fetch("CREATE TABLE things (number int)")
        [row] = await singles.fetch("INSERT INTO things SELECT * FROM unnest($1::int[]) RETURNING number", [7])
        assert row.number == 7
        with pytest.raises(AttributeError):
            _ = row.other


async def test_what_the_server_refuses_leaves_the_connection(postgres: Postgres, address: str) -> None:
    async with open_store(address, service="singles", bounds=Bounds(), singles=True) as store:
        singles = straight(store.singles)
        with pytest.raises(StoreRefused, match="division by zero"):
            await singles.fetch("SELECT 1 / 0")
        await singles.fetch("SELECT 1")
        assert await connections(postgres, address) == 1


async def test_a_cancelled_statement_costs_its_connection_and_nothing_else(postgres: Postgres, address: str) -> None:
    async with open_store(address, service="singles", bounds=Bounds(), singles=True) as store:
        singles = straight(store.singles)
        with anyio.move_on_after(0.1):
            await singles.fetch("SELECT pg_sleep(2)")  # it goes on there; a database is dropped once it has ended
        [row] = await singles.fetch("SELECT 2 AS two")
        assert row.two == 2


async def test_a_statement_over_its_bound_is_busy(address: str) -> None:
    async with open_store(address, service="singles", bounds=Bounds(statement=0.1), singles=True) as store:
        with pytest.raises(StoreBusy):
            await straight(store.singles).fetch("SELECT pg_sleep(2)")


async def test_a_database_that_went_is_unreachable_and_found_again(postgres: Postgres, address: str) -> None:
    async with open_store(address, service="singles", bounds=Bounds(), singles=True) as store:
        singles = straight(store.singles)
        await singles.fetch("SELECT 1")
        await postgres.shut(address)
        with pytest.raises(StoreUnreachable):
            await singles.fetch("SELECT 1")
        with pytest.raises(StoreUnreachable):
            await singles.fetch("SELECT 1")
        await postgres.open(address)
        assert len(await singles.fetch("SELECT 1")) == 1


async def test_both_kinds_of_connections_together_stay_within_the_bound(postgres: Postgres, address: str) -> None:
    """One connection is left to transactions: then there are no singles."""
    async with open_store(address, service="singles", bounds=Bounds(connections=1), singles=True) as store:
        assert store.singles is None
    async with open_store(address, service="singles", bounds=Bounds(connections=3), singles=True) as store:

        async def apart() -> None:
            await straight(store.singles).fetch("SELECT pg_sleep(0.2)")

        async def together() -> None:
            async with store.read() as connection:
                await connection.exec_driver_sql("SELECT pg_sleep(0.2)")

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(apart)
                tasks.start_soon(together)
            await anyio.sleep(0.3)
            assert await connections(postgres, address) == 3


async def test_sqlite_has_no_singles() -> None:
    with pytest.raises(ConfigurationError):
        async with open_store("sqlite:///x.db", service="singles", bounds=Bounds(), singles=True):
            pass
    async with open_store("sqlite:///x.db", service="singles", bounds=Bounds(), embedded=True, singles=True) as store:
        assert store.singles is None
