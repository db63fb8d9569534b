"""Short transactions straight on SQLite: what they wait for, and what their failures leave."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest
from sqlalchemy import text

from mcpfleet.store.engine import Store, open_store
from mcpfleet.store.errors import StoreBusy, StoreRefused, StoreUnreachable
from mcpfleet.store.settings import Bounds
from mcpfleet.store.sqlite import ShortTransactions


def short(store: Store) -> ShortTransactions:
    assert store.short is not None
    return store.short


def add(connection: sqlite3.Connection) -> int:
    """Write a row; returns how many there are."""
    connection.execute("INSERT INTO things VALUES (1)")
    ((count,),) = connection.execute("SELECT count(*) FROM things")
    return int(count)


@asynccontextmanager
async def opened(folder: Path, **bounds: float) -> AsyncIterator[Store]:
    """A store with a table."""
    own = Bounds(**bounds)  # type: ignore[arg-type]  # all of them are seconds
    async with open_store(f"sqlite:///{folder}/a.db", service="test", embedded=True, bounds=own) as store:
        async with store.write() as connection:
            await connection.execute(text("CREATE TABLE things (number int)"))
        yield store


@contextmanager
def locked(folder: Path) -> Iterator[sqlite3.Connection]:
    """Another process's transaction, as far as SQLite can tell."""
    connection = sqlite3.connect(folder / "a.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


async def test_what_a_function_wrote_is_committed_when_it_returns(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        assert [await short(store).run(add) for _ in range(3)] == [1, 2, 3]
        async with store.read() as connection:
            assert await connection.scalar(text("SELECT count(*) FROM things")) == 3


async def test_what_a_function_wrote_before_it_raises_is_undone(tmp_path: Path) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        add(connection)
        raise LookupError("nothing of the store's")

    def mistake(connection: sqlite3.Connection) -> None:
        add(connection)
        connection.execute("SELECT * FROM nowhere")

    async with opened(tmp_path) as store:
        with pytest.raises(LookupError):
            await short(store).run(fail)
        with pytest.raises(StoreRefused, match="nowhere"):
            await short(store).run(mistake)
        assert await short(store).run(add) == 1


async def test_many_at_once_and_other_writers_wait_for_each_other(tmp_path: Path) -> None:
    async def write() -> None:
        async with store.write() as connection:
            await connection.execute(text("INSERT INTO things VALUES (2)"))

    async with opened(tmp_path) as store:
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(short(store).run, add)
                tasks.start_soon(write)
        assert await short(store).run(add) == 41


async def test_a_lock_that_another_process_has_is_waited_for_within_the_bound(tmp_path: Path) -> None:
    async with opened(tmp_path, statement=0.6) as store:
        with locked(tmp_path), pytest.raises(StoreBusy):
            await short(store).run(add)
        with locked(tmp_path) as other:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(short(store).run, add)
                await anyio.sleep(0.3)  # longer than SQLite waits at a time
                other.execute("COMMIT")
        assert await short(store).run(add) == 2


async def test_a_function_goes_on_to_its_end_where_its_caller_is_cancelled(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work(connection: sqlite3.Connection) -> None:
        begun.set()
        go_on.wait(5)
        add(connection)

    async with opened(tmp_path) as store, anyio.create_task_group() as tasks:
        tasks.start_soon(short(store).run, work)
        await anyio.to_thread.run_sync(begun.wait, 5)
        tasks.cancel_scope.cancel()
        go_on.set()
    async with open_store(f"sqlite:///{tmp_path}/a.db", service="test", embedded=True, bounds=Bounds()) as store:
        assert await short(store).run(add) == 2


async def test_a_file_that_cannot_be_opened_is_a_store_that_is_away(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/missing/a.db"
    async with open_store(url, service="test", embedded=True, bounds=Bounds()) as store:
        with pytest.raises(StoreUnreachable):
            await short(store).run(add)
        (tmp_path / "missing").mkdir()
        assert await short(store).run(lambda connection: connection.execute("SELECT 1").fetchone()) == (1,)
