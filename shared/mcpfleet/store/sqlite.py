"""SQLite's connections, and short transactions straight on its driver, for work that a caller may wait for.

Through SQLAlchemy and aiosqlite each statement is several hops to a thread and back. A transaction of four statements
costs 2 ms of processor time. As one function in a thread it costs a tenth of that.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread

from mcpfleet.store.errors import StoreBusy, all_busy, translate, translated
from mcpfleet.store.settings import Bounds, take_places

_WAL_TURNS: Final = 100
_WAL_PAUSE: Final = 0.01
"""Seconds; another connection's switch takes a few milliseconds, once in a file's life."""
LOCK_TURN: Final = 0.25
"""Seconds that SQLite waits for a lock at a time. Nobody can end that wait, so it is short, and repeated."""

Result = TypeVar("Result")


def prepare(connection: Any, bounds: Bounds) -> None:
    """Set up a connection: its file keeps a write-ahead log, and it waits for a lock in turns."""
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {int(bounds.connect * 1000)}")
    _use_wal(cursor)
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute(f"PRAGMA busy_timeout = {int(min(LOCK_TURN, bounds.statement) * 1000)}")
    cursor.close()


def _use_wal(cursor: Any) -> None:
    """Make a new file keep a write-ahead log, which it remembers.

    If several connections make the switch at once, SQLite refuses all but one, without waiting for their turn.
    """
    for turn in range(_WAL_TURNS):
        cursor.execute("PRAGMA journal_mode")
        if cursor.fetchone()[0] == "wal":
            return
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if turn == _WAL_TURNS - 1:
                raise
            time.sleep(_WAL_PAUSE)


class ShortTransactions:
    """One connection of its own, made when needed. A transaction writes, and takes its lock at its beginning."""

    def __init__(self, path: str, where: str, bounds: Bounds, writers: anyio.Semaphore) -> None:
        """Describe the connection.

        Args:
            path: the file.
            where: the same, as it may be printed.
            bounds: the times of all waits.
            writers: the place of the store's one writer.
        """
        self._path = path
        self._where = where
        self._bounds = bounds
        self._writers = writers
        self._thread = anyio.CapacityLimiter(1)
        self._connection: sqlite3.Connection | None = None

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run a function in a transaction, which commits at its end, and rolls back if it raises.

        It runs in a thread, and goes on to its end if its caller is cancelled: nothing in it may wait for others.

        Raises:
            StoreError: as a transaction of the store does.
        """
        if not await take_places(self._bounds, self._writers):
            raise all_busy(self._where)
        try:
            deadline = anyio.current_time() + self._bounds.lock_wait
            while True:
                with translated(self._where):
                    done = await anyio.to_thread.run_sync(self._perform, work, limiter=self._thread)
                if done is not None:
                    return done[0]
                if anyio.current_time() >= deadline:
                    raise StoreBusy(f"the store at {self._where} is locked by another (MCPFLEET_STORE_TIMEOUT)")
        finally:
            self._writers.release()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _perform(self, work: Callable[[sqlite3.Connection], Result]) -> tuple[Result] | None:
        """Run the transaction in a thread; return None if another has the lock."""
        try:
            connection = self._open()
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if isinstance(translate(self._where, error), StoreBusy):
                    return None
                raise
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            self.close()  # closing rolls back; a new connection costs little, and this one may be broken
            raise
        return (result,)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            try:
                prepare(connection, self._bounds)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection
