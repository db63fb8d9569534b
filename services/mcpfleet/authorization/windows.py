"""Rate limits: fixed windows of the database's clock, from which edges take, never more than the limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
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
from mcpfleet.store.clock import now
from mcpfleet.store.engine import Store
from mcpfleet.store.insert import insert_for

_NONE: Final = -1
"""The number of a window that nobody has taken from."""


class Window(NamedTuple):
    """How much of a limit's window is taken."""

    number: int
    """How many windows of its length have passed since 1970."""
    used: int


class _Known(NamedTuple):
    """The last taking of an asker from a limit."""

    id: str
    granted: int
    ends_at: float


class _Taking(NamedTuple):
    """What a question does to one limit."""

    wanted: TokensWanted
    window: Window
    granted: int

    @property
    def ends_at(self) -> float:
        return (self.window.number + 1) * self.wanted.seconds


def grant(window: Window, wanted: TokensWanted, number: int) -> tuple[Window, int]:
    """Give back what is given back, and grant what is wanted as far as the window has it; returns it as it is then.

    Args:
        window: as it is in the store.
        wanted: what an edge asks for.
        number: the number of the window that is on. A question that waited may be behind the store's: then it counts in
            that one.
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


async def take_all(store: Store, question: TakeTokens) -> TokensTaken:
    """Take tokens of many windows, and give others back, in one transaction.

    A question that comes again, by its id, is answered as it was, and does nothing: the last one of each asker and
    limit is kept. One that is older than that does nothing either, since what it gave back may be given back already.

    Raises:
        StoreError: the database does not do its work.
    """
    return TokensTaken(limits=tuple(await _take(store, question.id, question.limits, is_late=_is_older)))


async def take(store: Store, question: TakeFromLimit) -> Taken:
    """Take calls of one window, as edges of the release before ask for it: their ids are in no order."""
    wanted = TokensWanted(
        key=question.key, limit=question.limit, seconds=question.seconds, wanted=min(question.wanted, question.limit)
    )
    (granted,) = await _take(store, question.id, [wanted], is_late=lambda *_: False)
    return Taken(granted=granted.granted, rest=granted.rest)


def _is_older(identifier: str, last: str) -> bool:
    return identifier < last


async def _take(store: Store, identifier: str, limits: Sequence[TokensWanted], *, is_late: Any) -> list[TokensGranted]:
    found: dict[str, TokensGranted] = {}
    takings_now: list[_Taking] = []
    async with store.write() as connection:
        kept, at = await _lock(connection, sorted(each.key for each in limits))
        last = await _last(connection, identifier, kept)
        for each in limits:
            window, known = kept[each.key], last.get(each.key)
            if known is not None and (known.id == identifier or is_late(identifier, known.id)):
                found[each.key] = _told(each, known, window, at, is_repeat=known.id == identifier)
                continue
            taking = _Taking(each, *grant(window, each, int(at / each.seconds)))
            if each.wanted or each.ahead or each.back:
                takings_now.append(taking)
            found[each.key] = _granted(each, taking.window, taking.granted, taking.ends_at - at)
        await _write(connection, identifier, takings_now)
    return [found[each.key] for each in limits]


def _granted(wanted: TokensWanted, window: Window, granted: int, rest: float) -> TokensGranted:
    left = max(0, wanted.limit - window.used)
    return TokensGranted(granted=granted, rest=max(0.0, rest), window=window.number, left=left)


def _told(wanted: TokensWanted, known: _Known, window: Window, at: float, *, is_repeat: bool) -> TokensGranted:
    """Answer a question that has been answered; one that is late gets nothing."""
    own = Window(round(known.ends_at / wanted.seconds) - 1, window.used)
    return _granted(wanted, own, known.granted if is_repeat else 0, known.ends_at - at)


async def _lock(connection: AsyncConnection, keys: Sequence[str]) -> tuple[dict[str, Window], float]:
    """Lock the windows' rows in the order of their keys, and read them; also the moment at which that began."""
    rows = (await connection.execute(_statements(connection.dialect.name).lock, [_fresh(key) for key in keys])).all()
    return {row.key: Window(row.number, row.used) for row in rows}, max(row.at for row in rows)


def _fresh(key: str) -> dict[str, Any]:
    return {"key": key, "number": _NONE, "used": 0, "granted": 0, "ends_at": 0.0}


async def _last(connection: AsyncConnection, identifier: str, keys: Iterable[str]) -> Mapping[str, _Known]:
    """The asker's last takings: read once the windows are locked, since the same question may be under way."""
    own = select(takings.c.key, takings.c.id, takings.c.granted, takings.c.ends_at)
    own = own.where(takings.c.key.in_(keys), takings.c.asker == identifier[:ASKER_LENGTH])
    rows = (await connection.execute(own)).all()
    return {row.key: _Known(row.id, row.granted, row.ends_at) for row in rows}


async def _write(connection: AsyncConnection, identifier: str, done: Sequence[_Taking]) -> None:
    if not done:
        return
    statements = _statements(connection.dialect.name)
    changed = [
        {
            "key": each.wanted.key,
            "number": each.window.number,
            "used": each.window.used,
            "granted": each.granted,
            "ends_at": each.ends_at,
        }
        for each in done
    ]
    await connection.execute(statements.windows, changed)
    asker = identifier[:ASKER_LENGTH]
    noted = [
        {"key": row["key"], "asker": asker, "id": identifier, "granted": row["granted"], "ends_at": row["ends_at"]}
        for row in changed
    ]
    await connection.execute(statements.takings, noted)


class _Statements(NamedTuple):
    lock: Insert
    windows: Insert
    takings: Insert


@cache
def _statements(dialect: str) -> _Statements:
    """The statements of a taking: composing them anew each time would cost more than running them."""
    lock, new_window, new_taking = (insert_for(table, dialect) for table in (windows, windows, takings))
    return _Statements(
        # A row that is there stays as it is, and is locked and read.
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
