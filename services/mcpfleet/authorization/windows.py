"""Rate limits: fixed windows by the database's clock, from which edges take tokens up to the limit."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple

from sqlalchemy import Insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.authorization.tables import ASKER_LENGTH, takings, windows
from mcpfleet.contracts.authorization import (
    AHEAD_SHARE,
    TakeFromLimit,
    Taken,
    TakeTokens,
    TokensGranted,
    TokensTaken,
    TokensWanted,
)
from mcpfleet.store.engine import Store
from mcpfleet.store.sql import SQLITE_NOW, insert_for, now


class Window(NamedTuple):
    """How much of a limit's window is used."""

    number: int
    """How many windows of its length have passed since 1970."""
    used: int


_FRESH: Final = Window(-1, 0)
"""A window that is not used yet."""


class _Known(NamedTuple):
    """An asker's last taking from a limit."""

    id: str
    granted: int
    ends_at: float


def grant(window: Window, wanted: TokensWanted, number: int) -> tuple[Window, int]:
    """Return tokens to a window and grant wanted ones from it; returns the window afterwards, and what was granted.

    Args:
        window: as the store has it.
        wanted: what an edge asks for.
        number: the number of the current window. The store's may be newer, for a question that waited; then the tokens
            count in the newer one.
    """
    if window.number < number:
        window = Window(number, 0)
    used = window.used
    if wanted.window == window.number:
        used -= min(wanted.back, used)
    left = max(0, wanted.limit - used)
    granted = min(wanted.wanted, left)
    granted += min(wanted.ahead, (left - granted) // AHEAD_SHARE)
    return Window(window.number, used + granted), granted


class _Question(NamedTuple):
    """An asker's wishes, one for each limit."""

    id: str
    limits: Sequence[TokensWanted]
    is_ordered: bool
    """The asker's ids rise, so an id below its last one is late."""

    @property
    def asker(self) -> str:
        return self.id[:ASKER_LENGTH]

    @property
    def keys(self) -> list[str]:
        return sorted(each.key for each in self.limits)

    def is_done(self, known: _Known | None) -> bool:
        """Whether this question was answered before, or a newer one was."""
        return known is not None and (known.id == self.id or (self.is_ordered and self.id < known.id))


async def take_all(store: Store, question: TakeTokens) -> TokensTaken:
    """Take tokens from many windows, and return others, in one transaction.

    A repeated question, by its id, gets the same answer and changes nothing: each asker's last one is kept for each
    limit. An older question changes nothing either, since its tokens may have been returned already.

    Raises:
        StoreError: the database does not do its work.
    """
    return TokensTaken(limits=await _take(store, _Question(question.id, question.limits, is_ordered=True)))


async def take(store: Store, question: TakeFromLimit) -> Taken:
    """Take calls from one window, as edges of the former release ask for it: their ids have no order."""
    wanted = TokensWanted(
        key=question.key, limit=question.limit, seconds=question.seconds, wanted=min(question.wanted, question.limit)
    )
    (granted,) = await _take(store, _Question(question.id, [wanted], is_ordered=False))
    return Taken(granted=granted.granted, rest=granted.rest)


async def _take(store: Store, question: _Question) -> tuple[TokensGranted, ...]:
    if store.short is not None:
        return await store.short.run(partial(_take_short, question))
    async with store.write() as connection:
        kept, at = await _lock(connection, question.keys)
        # Read after the windows are locked, since the same question may be in progress.
        decision = _decide(question, kept, await _last(connection, question), at)
        if decision.windows:
            statements = _statements(connection.dialect.name)
            await connection.execute(statements.windows, decision.windows)
            await connection.execute(statements.takings, decision.takings)
    return decision.granted


class _Decision(NamedTuple):
    """The answer to a question, and the rows to write for it."""

    granted: tuple[TokensGranted, ...]
    windows: list[dict[str, Any]]
    takings: list[dict[str, Any]]


def _decide(question: _Question, kept: Mapping[str, Window], last: Mapping[str, _Known], at: float) -> _Decision:
    """Decide about each limit by its row, and by the asker's last taking."""
    decision = _Decision((), [], [])
    granted: list[TokensGranted] = []
    for each in question.limits:
        window, known = kept.get(each.key, _FRESH), last.get(each.key)
        if known is not None and question.is_done(known):
            granted.append(_told(each, known, window, at, is_repeat=known.id == question.id))
            continue
        window, count = grant(window, each, int(at / each.seconds))
        ends_at = (window.number + 1) * each.seconds
        granted.append(_granted(each, window, count, ends_at - at))
        if each.wanted or each.ahead or each.back:
            common = {"key": each.key, "granted": count, "ends_at": ends_at}
            decision.windows.append({**common, "number": window.number, "used": window.used})
            decision.takings.append({**common, "asker": question.asker, "id": question.id})
    return decision._replace(granted=tuple(granted))


def _granted(wanted: TokensWanted, window: Window, granted: int, rest: float) -> TokensGranted:
    left = max(0, wanted.limit - window.used)
    return TokensGranted(granted=granted, rest=max(0.0, rest), window=window.number, left=left)


def _told(wanted: TokensWanted, known: _Known, window: Window, at: float, *, is_repeat: bool) -> TokensGranted:
    """Answer a repeated question as before; a late one gets nothing."""
    own = Window(round(known.ends_at / wanted.seconds) - 1, window.used)
    return _granted(wanted, own, known.granted if is_repeat else 0, known.ends_at - at)


# -- PostgreSQL -------------------------------------------------------------------------------------------------------


async def _lock(connection: AsyncConnection, keys: Sequence[str]) -> tuple[dict[str, Window], float]:
    """Lock the windows' rows in the order of their keys, and read them; also returns when that began."""
    fresh = {"number": _FRESH.number, "used": 0, "granted": 0, "ends_at": 0.0}
    made = [{"key": key, **fresh} for key in keys]
    rows = (await connection.execute(_statements(connection.dialect.name).lock, made)).all()
    return {row.key: Window(row.number, row.used) for row in rows}, max(row.at for row in rows)


async def _last(connection: AsyncConnection, question: _Question) -> dict[str, _Known]:
    """The asker's last takings."""
    own = select(takings.c.key, takings.c.id, takings.c.granted, takings.c.ends_at)
    own = own.where(takings.c.key.in_(question.keys), takings.c.asker == question.asker)
    return {key: _Known(*known) for key, *known in (await connection.execute(own)).all()}


class _Statements(NamedTuple):
    lock: Insert
    windows: Insert
    takings: Insert


@cache
def _statements(dialect: str) -> _Statements:
    """The statements of a taking, composed once: composing them each time would cost more than running them."""
    lock, new_window, new_taking = (insert_for(table, dialect) for table in (windows, windows, takings))
    return _Statements(
        # A row that exists is locked and read, and stays the same.
        lock.on_conflict_do_update(index_elements=["key"], set_={"granted": windows.c.granted}).returning(
            windows.c.key, windows.c.number, windows.c.used, now().label("at")
        ),
        new_window.on_conflict_do_update(
            index_elements=["key"],
            set_={name: new_window.excluded[name] for name in ("number", "used", "granted", "ends_at")},
        ),
        new_taking.on_conflict_do_update(
            index_elements=["key", "asker"],
            set_={name: new_taking.excluded[name] for name in ("id", "granted", "ends_at")},
        ),
    )


# -- SQLite, where a transaction is one function ----------------------------------------------------------------------

_WINDOWS: Final = """
INSERT INTO authorization_windows (key, number, used, granted, ends_at)
VALUES (:key, :number, :used, :granted, :ends_at)
ON CONFLICT (key) DO UPDATE SET
  number = excluded.number, used = excluded.used, granted = excluded.granted, ends_at = excluded.ends_at
"""
_TAKINGS: Final = """
INSERT INTO authorization_takings (key, asker, id, granted, ends_at)
VALUES (:key, :asker, :id, :granted, :ends_at)
ON CONFLICT (key, asker) DO UPDATE SET id = excluded.id, granted = excluded.granted, ends_at = excluded.ends_at
"""


def _take_short(question: _Question, connection: sqlite3.Connection) -> tuple[TokensGranted, ...]:
    """Take within a transaction that has the lock."""
    keys = question.keys
    listed = f"key IN ({', '.join('?' * len(keys))})"
    ((at,),) = connection.execute(f"SELECT {SQLITE_NOW}")
    rows = connection.execute(f"SELECT key, number, used FROM authorization_windows WHERE {listed}", keys)  # noqa: S608  # of constants
    kept = {key: Window(number, used) for key, number, used in rows}
    rows = connection.execute(
        f"SELECT key, id, granted, ends_at FROM authorization_takings WHERE {listed} AND asker = ?",  # noqa: S608  # of constants
        (*keys, question.asker),
    )
    last = {key: _Known(*known) for key, *known in rows}
    decision = _decide(question, kept, last, at)
    if decision.windows:
        connection.executemany(_WINDOWS, decision.windows)
        connection.executemany(_TAKINGS, decision.takings)
    return decision.granted
