"""Whether a change that failed has certainly not happened: only a commit without an answer is open."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import Column, Integer, MetaData, Table, func, insert, select, text

from mcpfleet.store.engine import Store, open_store
from mcpfleet.store.errors import StoreBusy, StoreError, StoreRefused, StoreUnreachable
from mcpfleet.store.settings import Bounds
from tests.kit.postgres import Postgres
from tests.kit.proxy import TcpProxy, after, never, once, proxied
from tests.kit.waiting import until

metadata = MetaData()
things = Table("things", metadata, Column("number", Integer, primary_key=True))
INSERT = "INSERT INTO things SELECT unnest($1::int[])"


@pytest.fixture
async def way(postgres: Postgres) -> AsyncIterator[TcpProxy]:
    """The way to a fresh database that has one table."""
    async with postgres.migrated() as url, proxied(url) as made:
        async with open_store(url, service="test", bounds=Bounds()) as store, store.write() as connection:
            await connection.run_sync(metadata.create_all)
        yield made


async def add(store: Store, number: int = 1) -> None:
    async with store.write() as connection:
        await connection.execute(insert(things).values(number=number))


async def count(store: Store) -> int:
    async with store.read() as connection:
        return await connection.scalar(select(func.count()).select_from(things)) or 0


async def failed(store: Store) -> StoreError:
    with pytest.raises(StoreError) as raised:
        await add(store)
    return raised.value


@pytest.mark.rule("K24")
async def test_what_is_lost_before_its_commit_is_certainly_not_written(way: TcpProxy) -> None:
    async with open_store(way.url, service="test", bounds=Bounds()) as store:
        for lost in ({"forth": once(b"INSERT")}, {"back": once(b"INSERT")}, {"forth": once(b"BEGIN")}):
            way.forth, way.back = lost.get("forth", never), lost.get("back", never)
            error = await failed(store)
            assert isinstance(error, StoreUnreachable)
            assert error.is_undone
            assert await count(store) == 0
        assert way.cuts == 3


@pytest.mark.rule("K24")
@pytest.mark.parametrize(("direction", "written"), [("forth", 0), ("back", 1)])
async def test_a_commit_without_an_answer_is_open(way: TcpProxy, direction: str, written: int) -> None:
    """Nobody knows on which side of the server the way was cut."""
    async with open_store(way.url, service="test", bounds=Bounds()) as store:
        setattr(way, direction, once(b"COMMIT"))
        error = await failed(store)
        assert isinstance(error, StoreUnreachable)
        assert not error.is_undone
        assert await count(store) == written


@pytest.mark.rule("K24")
async def test_a_refused_connection_has_certainly_written_nothing(way: TcpProxy) -> None:
    async with open_store(way.url, service="test", bounds=Bounds(), singles=True) as store:
        way.cut()
        error = await failed(store)
        assert isinstance(error, StoreUnreachable)
        assert error.is_undone
        assert store.singles is not None
        with pytest.raises(StoreUnreachable) as raised:
            await store.singles.fetch(INSERT, [1], writes=True)
        assert raised.value.is_undone
        with pytest.raises(StoreUnreachable) as raised:
            await count(store)
        assert not raised.value.is_undone, "a reading says nothing of what was written before it"


@pytest.mark.rule("K24")
@pytest.mark.parametrize(("direction", "written"), [("forth", 0), ("back", 1)])
async def test_a_single_statement_without_an_answer_is_open(way: TcpProxy, direction: str, written: int) -> None:
    async with open_store(way.url, service="test", bounds=Bounds(), singles=True) as store:
        assert store.singles is not None
        await store.singles.fetch(INSERT, [], writes=True)  # it is prepared by now
        setattr(way, direction, once(b"\x00\x00\x00\x07" if direction == "forth" else b"INSERT 0 1"))
        with pytest.raises(StoreUnreachable) as raised:
            await store.singles.fetch(INSERT, [7], writes=True)
        assert not raised.value.is_undone
        assert way.cuts == 1
        assert await count(store) == written


@pytest.mark.rule("K24")
async def test_a_servers_own_refusal_is_certain(way: TcpProxy) -> None:
    async with open_store(way.url, service="test", bounds=Bounds(statement=0.3), singles=True) as store:
        await add(store)
        assert store.singles is not None
        for statement, kind in ((INSERT, StoreRefused), ("SELECT pg_sleep(1) WHERE $1::int[] IS NOT NULL", StoreBusy)):
            with pytest.raises(kind) as raised:
                await store.singles.fetch(statement, [1], writes=True)
            assert raised.value.is_undone
        assert (await failed(store)).is_undone, "twice the same key"


@pytest.mark.rule("K24")
async def test_a_commit_that_the_server_refuses_is_certain(way: TcpProxy) -> None:
    async with open_store(way.url, service="test", bounds=Bounds()) as store:
        async with store.write() as connection:
            await connection.execute(
                text("ALTER TABLE things ADD COLUMN of int REFERENCES things DEFERRABLE INITIALLY DEFERRED")
            )
        with pytest.raises(StoreRefused) as raised:
            async with store.write() as connection:
                await connection.execute(text("INSERT INTO things (number, of) VALUES (1, 99)"))
        assert raised.value.is_undone
        assert await count(store) == 0


@pytest.mark.rule("K24")
async def test_a_connection_that_died_before_the_commit_has_written_nothing(postgres: Postgres) -> None:
    async with postgres.migrated() as url, open_store(url, service="test", bounds=Bounds()) as store:

        async def die() -> None:
            async with store.write() as connection:
                await connection.execute(text("CREATE TABLE others (number int)"))
                pid = await connection.scalar(select(func.pg_backend_pid()))
                driver: Any = (await connection.get_raw_connection()).driver_connection
                gone = anyio.Event()
                driver.add_termination_listener(lambda _: gone.set())
                await postgres.run(f"SELECT pg_terminate_backend({pid}, 5000)")
                await gone.wait()

        with anyio.fail_after(10), pytest.raises(StoreUnreachable) as raised:
            await die()
        assert raised.value.is_undone


@pytest.mark.rule("K23")
async def test_wherever_the_way_is_cut_the_store_says_unreachable(way: TcpProxy) -> None:
    """Byte by byte through what passes: no driver's own error comes through, and the next try finds the database."""
    async with open_store(way.url, service="test", bounds=Bounds(connections=3), singles=True) as store:
        assert store.singles is not None
        for size in range(0, 900, 23):
            for direction in ("forth", "back"):
                await store.singles.fetch("SELECT $1::text", "warm")
                setattr(way, direction, after(size))
                for _ in range(20):
                    try:
                        await store.singles.fetch("SELECT repeat($1, 400)", "x")
                        async with store.write() as connection:
                            await connection.execute(text("SELECT repeat('y', 400)"))
                    except StoreUnreachable:
                        break
                way.forth = way.back = never
        assert way.cuts >= 70


@pytest.mark.rule("K24")
async def test_a_full_sqlite_has_certainly_written_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/fleet.db"
    async with open_store(url, service="test", embedded=True, bounds=Bounds(connections=1)) as store:
        async with store.write() as connection:
            await connection.run_sync(metadata.create_all)
            pages = await connection.scalar(text("PRAGMA page_count")) or 0
        async with store.read() as connection:
            await connection.execute(text(f"PRAGMA max_page_count = {pages}"))
        with pytest.raises(StoreUnreachable, match="full") as raised:
            async with store.write() as connection:
                await connection.execute(insert(things), [{"number": number} for number in range(10_000)])
        assert raised.value.is_undone
        assert await count(store) == 0


async def test_a_close_of_sqlite_that_is_cancelled_leaves_nothing_that_waits(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/fleet.db"
    before = asyncio.all_tasks()
    async with open_store(url, service="test", embedded=True, bounds=Bounds(connections=1)) as store:
        for moment in range(12):
            with suppress(StoreUnreachable):  # where the close came through
                async with store.write() as connection:
                    await connection.execute(text("SELECT 1"))
                    closing = asyncio.create_task(connection.invalidate())
                    for _ in range(moment):
                        await asyncio.sleep(0)
                    closing.cancel()
                    await asyncio.wait([closing])
    await until(lambda: asyncio.all_tasks() <= before)


@pytest.mark.rule("K24")
async def test_a_locked_sqlite_has_certainly_written_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/fleet.db"
    async with open_store(url, service="test", embedded=True, bounds=Bounds(statement=0.3)) as store:
        async with store.write() as connection:
            await connection.run_sync(metadata.create_all)
        other = sqlite3.connect(tmp_path / "fleet.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy) as raised:
            await add(store)
        other.close()
        assert raised.value.is_undone
