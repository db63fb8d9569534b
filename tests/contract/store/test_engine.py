"""The store's transactions, on both databases."""

from __future__ import annotations

import time
import traceback
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketAttribute
from sqlalchemy import Column, Integer, MetaData, Table, func, insert, select, text, update

from mcpfleet.catalog.tables import pools
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.store.engine import Store, open_store
from mcpfleet.store.errors import StoreBusy, StoreRefused, StoreUnreachable
from mcpfleet.store.settings import Bounds
from mcpfleet.store.sql import now
from tests.kit.postgres import Postgres, database_of

metadata = MetaData()
counters = Table("counters", metadata, Column("name", Integer, primary_key=True), Column("value", Integer))


@pytest.fixture
async def counter(store: Store) -> Store:
    async with store.write() as connection:
        await connection.run_sync(metadata.create_all)
        await connection.execute(insert(counters).values(name=1, value=0))
    return store


async def value(store: Store) -> int | None:
    async with store.read() as connection:
        return await connection.scalar(select(counters.c.value))


async def test_a_write_is_committed_at_its_end(counter: Store) -> None:
    async with counter.write() as connection:
        await connection.execute(update(counters).values(value=7))
    assert await value(counter) == 7


async def test_a_write_that_raises_is_rolled_back(counter: Store) -> None:
    async def fail() -> None:
        async with counter.write() as connection:
            await connection.execute(update(counters).values(value=7))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await value(counter) == 0


async def test_a_transaction_that_is_cancelled_is_done_whole_or_not_at_all(counter: Store) -> None:
    with anyio.CancelScope() as scope:
        async with counter.write() as connection:
            await connection.execute(update(counters).values(value=counters.c.value + 1))
            scope.cancel()
            await connection.execute(update(counters).values(value=counters.c.value + 1))
        await anyio.lowlevel.checkpoint()
        pytest.fail("the cancellation comes through after the transaction at the latest")
    assert await value(counter) == (2 if counter.dialect == "sqlite" else 0)


LONG = 30.0
"""Seconds that a busy machine stays below; what is tested lasts longer, if nothing ends it."""


async def test_a_deadline_ends_a_wait_for_another_processs_lock(url: str, counter: Store) -> None:
    """Whatever a statement may take: who waits no longer is let go at once, and leaves no lock behind."""
    add_one = update(counters).values(value=counters.c.value + 1)
    async with open_store(url, service="other", embedded=True, bounds=Bounds(connections=1, statement=60)) as other:
        async with counter.write() as holder:
            await holder.execute(add_one)
            started = time.monotonic()
            with anyio.move_on_after(0.3) as deadline:
                async with other.write() as connection:
                    await connection.execute(add_one)
            assert deadline.cancelled_caught
            assert time.monotonic() - started < LONG
        for store in (counter, other):
            with anyio.fail_after(LONG):
                async with store.write() as connection:
                    await connection.execute(add_one)
    assert await value(counter) == 3


async def test_a_deadline_ends_the_making_of_a_connection() -> None:
    """A database that takes a connection and says nothing: a firewall, or a server that is paused."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        url = f"postgresql://me@127.0.0.1:{listener.extra(SocketAttribute.local_port)}/fleet"
        async with open_store(url, service="test", bounds=Bounds(connections=1)) as store:
            for _ in range(2):
                started = time.monotonic()
                with anyio.move_on_after(0.1) as deadline:
                    async with store.write():
                        pytest.fail("nobody answers")
                assert deadline.cancelled_caught
                assert time.monotonic() - started < LONG


async def test_who_waits_for_a_connection_can_be_cancelled(url: str) -> None:
    bounds = Bounds(connections=1)
    async with open_store(url, service="test", embedded=True, bounds=bounds) as store, store.read():
        with anyio.move_on_after(0.05) as scope:
            async with store.read():
                pytest.fail("there is no second connection")
        assert scope.cancelled_caught


async def test_a_transaction_that_does_not_end_is_ended(url: str) -> None:
    bounds = Bounds(connect=0.2, statement=0.1)
    async with open_store(url, service="test", embedded=True, bounds=bounds) as store:
        with anyio.fail_after(10), pytest.raises(StoreBusy, match="MCPFLEET_STORE_TIMEOUT"):
            async with store.read():
                await anyio.sleep_forever()


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_cancelling_at_any_moment_costs_no_connection(url: str, kind: str) -> None:
    async with open_store(url, service="test", embedded=True, bounds=Bounds(connections=1)) as store:

        async def work() -> None:
            async with getattr(store, kind)() as connection:
                await connection.scalar(select(now()))

        for moment in range(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work)
                for _ in range(moment):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        await work()


async def test_writers_that_read_first_do_not_overwrite_each_other(counter: Store) -> None:
    """On SQLite because a write begins with the lock, on PostgreSQL by the row's lock."""

    async def add_one() -> None:
        async with counter.write() as connection:
            seen = await connection.scalar(select(counters.c.value).with_for_update()) or 0
            await anyio.lowlevel.checkpoint()
            await connection.execute(update(counters).values(value=seen + 1))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(add_one)
    assert await value(counter) == 20


async def test_who_finds_no_free_connection_is_told_busy_within_the_bound(url: str) -> None:
    bounds = Bounds(connections=1, statement=0.2)
    async with open_store(url, service="test", embedded=True, bounds=bounds) as store, store.read():
        with pytest.raises(StoreBusy, match="MCPFLEET_STORE_CONNECTIONS"):
            async with store.read():
                pass


async def test_a_wait_for_another_processs_lock_ends_within_the_bound(url: str, counter: Store) -> None:
    async with (
        open_store(url, service="other", embedded=True, bounds=Bounds(statement=0.3)) as other,
        counter.write() as holder,
    ):
        await holder.execute(update(counters).values(value=1))
        started = time.monotonic()
        with pytest.raises(StoreBusy, match="MCPFLEET_STORE_TIMEOUT"):
            async with other.write() as connection:
                await connection.execute(update(counters).values(value=2))
        assert time.monotonic() - started < LONG
    assert await value(counter) == 1


async def test_the_clock_is_the_databases_and_in_seconds_since_1970(store: Store) -> None:
    async with store.read() as connection:
        moment = await connection.scalar(select(now()))
    assert moment == pytest.approx(time.time(), abs=5)


async def test_the_clock_stands_still_within_a_statement_and_goes_on_within_a_transaction(store: Store) -> None:
    async with store.write() as connection:
        first = (await connection.execute(select(now(), now()))).one()
        await anyio.sleep(0.01)
        second = (await connection.execute(select(now()))).scalar_one()
    assert first[0] == first[1] < second


async def test_a_row_cannot_refer_to_one_that_is_not_there(store: Store) -> None:
    with pytest.raises(StoreRefused):
        async with store.write() as connection:
            await connection.execute(insert(pools).values(pool="books", digest="0" * 32, since=now()))


async def test_readers_do_not_wait_for_a_writer(counter: Store) -> None:
    async with counter.write() as connection:
        await connection.execute(update(counters).values(value=1))
        assert await value(counter) == 0


async def test_postgresql_shows_which_service_a_connection_is_of(postgres: Postgres) -> None:
    async with (
        postgres.migrated() as url,
        open_store(url, service="test", bounds=Bounds()) as store,
        store.read() as connection,
    ):
        assert await connection.scalar(select(func.current_setting("application_name"))) == "mcpfleet-test"


async def test_a_connection_that_the_server_closed_while_idle_is_replaced(postgres: Postgres) -> None:
    """A restart of PostgreSQL costs no request, as far as the connections were idle."""
    async with postgres.migrated() as url, open_store(url, service="test", bounds=Bounds()) as store:
        async with store.read() as connection:
            pid = await connection.scalar(select(func.pg_backend_pid()))
        await postgres.run(f"SELECT pg_terminate_backend({pid}, 5000)")
        async with store.read() as connection:
            assert await connection.scalar(select(func.pg_backend_pid())) != pid


async def test_a_connection_that_is_lost_in_use_is_told_as_unreachable(postgres: Postgres) -> None:
    async with postgres.migrated() as url, open_store(url, service="test", bounds=Bounds()) as store:

        async def lose() -> None:
            async with store.write() as connection:
                pid = await connection.scalar(select(func.pg_backend_pid()))
                await postgres.run(f"SELECT pg_terminate_backend({pid}, 5000)")
                await connection.execute(text("SELECT 1"))

        with pytest.raises(StoreUnreachable, match="MCPFLEET_STORE_URL"):
            await lose()


async def test_a_server_that_became_a_standby_is_not_asked_again(postgres: Postgres) -> None:
    async with postgres.migrated() as url, open_store(url, service="test", bounds=Bounds(connections=1)) as store:
        name = database_of(url)
        await postgres.run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with pytest.raises(StoreUnreachable, match="read-only"):
            async with store.write() as connection:
                await connection.run_sync(metadata.create_all)
        await postgres.run(f"ALTER DATABASE {name} SET default_transaction_read_only = off")
        async with store.write() as connection:
            await connection.run_sync(metadata.create_all)


async def test_a_writer_that_stands_still_loses_its_locks(postgres: Postgres) -> None:
    """A paused process must not keep the others from a row."""
    async with postgres.migrated() as url, open_store(url, service="a", bounds=Bounds(statement=0.2)) as store:
        gone = anyio.Event()

        async def stand_still() -> None:
            async with store.write() as connection:
                await connection.execute(text("SELECT 1"))
                driver: Any = (await connection.get_raw_connection()).driver_connection
                driver.add_termination_listener(lambda _: gone.set())
                await gone.wait()
                await connection.execute(text("SELECT 1"))

        with anyio.fail_after(10), pytest.raises(StoreUnreachable):
            await stand_still()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@127.0.0.1:1/fleet",
        "postgresql://me:hunter2@127.0.0.1:1/fleet?sslmode=require",
        "sqlite:////nowhere/hunter2.db",
    ],
)
async def test_a_database_that_is_away_names_its_setting_and_no_password(url: str) -> None:
    async with open_store(url, service="test", embedded=True, bounds=Bounds(connect=1)) as store:
        with pytest.raises(StoreUnreachable, match="MCPFLEET_STORE_URL") as raised:
            async with store.read():
                pass
    assert "me:" not in str(raised.value)


async def test_a_refused_password_is_never_printed(postgres: Postgres) -> None:
    url = postgres.url().replace("postgres:@", "stranger:hunter2@")
    async with open_store(url, service="test", bounds=Bounds()) as store:
        with pytest.raises(StoreUnreachable) as raised:
            async with store.read():
                pass
    assert "hunter2" not in "".join(traceback.format_exception(raised.value))


async def test_parameters_stay_out_of_errors(store: Store) -> None:
    with pytest.raises(Exception, match="no_such_table") as raised:
        async with store.write() as connection:
            await connection.execute(text("INSERT INTO no_such_table VALUES (:secret)"), {"secret": "hunter2"})
    assert "hunter2" not in str(raised.value)


async def test_sqlite_is_refused_outside_dev() -> None:
    with pytest.raises(ConfigurationError, match=r"MCPFLEET_STORE_URL.*MCPFLEET_EMBEDDED"):
        async with open_store("sqlite:///fleet.db", service="test", bounds=Bounds()):
            pass


@pytest.mark.parametrize("url", ["", "mysql://me:hunter2@host/db", "sqlite://", "sqlite:///", "sqlite:///:memory:"])
async def test_an_address_that_cannot_be_served_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match="MCPFLEET_STORE_URL") as raised:
        async with open_store(url, service="test", embedded=True, bounds=Bounds()):
            pass
    assert "hunter2" not in str(raised.value)
