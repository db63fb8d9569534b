"""Single statements straight on PostgreSQL: what ends a connection, and what does not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import asyncpg  # type: ignore[import-untyped]  # it ships no types
import pytest

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.store.bounds import Bounds
from mcpfleet.store.direct import Direct
from mcpfleet.store.engine import open_store
from mcpfleet.store.errors import StoreBusy, StoreUnreachable
from tests.kit.postgres import Postgres


@pytest.fixture
async def address(postgres: Postgres) -> AsyncIterator[str]:
    async with postgres.database() as url:
        yield url


async def connections(postgres: Postgres, url: str) -> int:
    """How many connections this test's service holds."""
    connection = await asyncpg.connect(url)
    try:
        found: int = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mcpfleet-direct' AND datname = "
            "current_database()"
        )
        return found
    finally:
        await connection.close()


def straight(found: Direct | None) -> Direct:
    assert found is not None
    return found


async def test_a_statement_commits_by_itself_and_its_rows_have_attributes(address: str) -> None:
    async with open_store(address, service="direct", bounds=Bounds(), direct=True) as store:
        direct = straight(store.direct)
        await direct.fetch("CREATE TABLE things (number int)")
        [row] = await direct.fetch("INSERT INTO things SELECT * FROM unnest($1::int[]) RETURNING number", [7])
        assert row.number == 7
        with pytest.raises(AttributeError):
            _ = row.other


async def test_what_the_server_refuses_leaves_the_connection(postgres: Postgres, address: str) -> None:
    async with open_store(address, service="direct", bounds=Bounds(), direct=True) as store:
        direct = straight(store.direct)
        with pytest.raises(asyncpg.DivisionByZeroError):
            await direct.fetch("SELECT 1 / 0")
        await direct.fetch("SELECT 1")
        assert await connections(postgres, address) == 1


async def test_a_cancelled_statement_costs_its_connection_and_nothing_else(postgres: Postgres, address: str) -> None:
    async with open_store(address, service="direct", bounds=Bounds(), direct=True) as store:
        direct = straight(store.direct)
        with anyio.move_on_after(0.1):
            await direct.fetch("SELECT pg_sleep(5)")
        [row] = await direct.fetch("SELECT 2 AS two")
        assert row.two == 2


async def test_a_statement_over_its_bound_is_busy(address: str) -> None:
    async with open_store(address, service="direct", bounds=Bounds(statement=0.1), direct=True) as store:
        with pytest.raises(StoreBusy):
            await straight(store.direct).fetch("SELECT pg_sleep(5)")


async def test_a_database_that_went_is_unreachable_and_found_again(postgres: Postgres, address: str) -> None:
    async with open_store(address, service="direct", bounds=Bounds(), direct=True) as store:
        direct = straight(store.direct)
        await direct.fetch("SELECT 1")
        await postgres.shut(address)
        with pytest.raises(StoreUnreachable):
            await direct.fetch("SELECT 1")
        with pytest.raises(StoreUnreachable):
            await direct.fetch("SELECT 1")
        await postgres.open(address)
        assert len(await direct.fetch("SELECT 1")) == 1


async def test_both_kinds_of_connections_together_stay_within_the_bound(postgres: Postgres, address: str) -> None:
    """One connection is left to transactions: then there is no direct way."""
    async with open_store(address, service="direct", bounds=Bounds(connections=1), direct=True) as store:
        assert store.direct is None
    async with open_store(address, service="direct", bounds=Bounds(connections=3), direct=True) as store:

        async def apart() -> None:
            await straight(store.direct).fetch("SELECT pg_sleep(0.2)")

        async def together() -> None:
            async with store.read() as connection:
                await connection.exec_driver_sql("SELECT pg_sleep(0.2)")

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(apart)
                tasks.start_soon(together)
            await anyio.sleep(0.3)
            assert await connections(postgres, address) == 3


async def test_sqlite_has_no_direct_way() -> None:
    with pytest.raises(ConfigurationError):
        async with open_store("sqlite:///x.db", service="direct", bounds=Bounds(), direct=True):
            pass
    async with open_store("sqlite:///x.db", service="direct", bounds=Bounds(), embedded=True, direct=True) as store:
        assert store.direct is None
