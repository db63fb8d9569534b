"""Rate limits: fixed windows of the database's clock, from which edges take, never more than the limit."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Double, case, cast, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from mcpfleet.authorization.tables import ASKER_LENGTH, takings, windows
from mcpfleet.contracts.authorization import TakeFromLimit, Taken
from mcpfleet.store.clock import now
from mcpfleet.store.engine import Store
from mcpfleet.store.insert import insert_into


class whole(FunctionElement[int]):  # noqa: N801 - reads as the SQL function that it is
    """The whole part of a number that is not below 0."""

    type = BigInteger()
    inherit_cache = True


@compiles(whole, "postgresql")
def _postgresql(element: whole, compiler: SQLCompiler, **options: Any) -> str:
    return f"CAST(FLOOR({compiler.process(element.clauses, **options)}) AS BIGINT)"


@compiles(whole, "sqlite")
def _sqlite(element: whole, compiler: SQLCompiler, **options: Any) -> str:
    """A cast cuts the fraction off; `floor` is missing in the SQLite of many a Python."""
    return f"CAST(({compiler.process(element.clauses, **options)}) AS INTEGER)"


async def take(store: Store, question: TakeFromLimit) -> Taken:
    """Take calls of a window, as many of those that are wanted as it still has.

    A question that comes again, by its id, is answered as it was, and takes nothing: the last one of each asker is
    kept, and no asker has two under way for one key.

    Raises:
        StoreError: the database does not do its work.
    """
    async with store.write() as connection:
        if not await _is_new(connection, question):
            return await _answered(connection, question)
        granted, ends_at, rest = await _add(connection, question)
        own = update(takings).where(takings.c.key == question.key, takings.c.asker == _asker(question))
        await connection.execute(own.values(granted=granted, ends_at=ends_at))
    return Taken(granted=granted, rest=max(0.0, rest))


def _asker(question: TakeFromLimit) -> str:
    return question.id[:ASKER_LENGTH]


async def _is_new(connection: AsyncConnection, question: TakeFromLimit) -> bool:
    """Note the question as its asker's last one; false where it is that already."""
    noted = insert_into(takings, connection).values(
        key=question.key, asker=_asker(question), id=question.id, granted=0, ends_at=now()
    )
    noted = noted.on_conflict_do_update(
        index_elements=["key", "asker"],
        set_={"id": noted.excluded.id, "granted": 0},
        where=takings.c.id != noted.excluded.id,
    )
    return (await connection.execute(noted.returning(takings.c.id))).first() is not None


async def _answered(connection: AsyncConnection, question: TakeFromLimit) -> Taken:
    own = select(takings.c.granted, (takings.c.ends_at - now()).label("rest"))
    own = own.where(takings.c.key == question.key, takings.c.asker == _asker(question))
    row = (await connection.execute(own)).one()
    return Taken(granted=row.granted, rest=max(0.0, row.rest))


async def _add(connection: AsyncConnection, question: TakeFromLimit) -> tuple[int, float, float]:
    """Add what is granted where the sum stays within the limit; returns that, the window's end, and what is left of it.

    A statement that began in one window may get the row's lock in the next: then it counts in the later one.
    """
    limit, wanted = literal(question.limit, BigInteger), literal(min(question.wanted, question.limit), BigInteger)
    seconds = literal(question.seconds, Double)
    number: ColumnElement[int] = whole(now() / seconds)
    first = insert_into(windows, connection).values(
        key=question.key,
        number=number,
        used=wanted,
        granted=wanted,
        ends_at=(cast(number, Double) + 1) * seconds,
    )
    is_over = windows.c.number < first.excluded.number
    left = limit - windows.c.used
    granted = case((is_over, wanted), (left <= 0, literal(0, BigInteger)), (left < wanted, left), else_=wanted)
    added = first.on_conflict_do_update(
        index_elements=["key"],
        set_={
            "number": case((is_over, first.excluded.number), else_=windows.c.number),
            "ends_at": case((is_over, first.excluded.ends_at), else_=windows.c.ends_at),
            "used": case((is_over, literal(0, BigInteger)), else_=windows.c.used) + granted,
            "granted": granted,
        },
    )
    row = (
        await connection.execute(
            added.returning(windows.c.granted, windows.c.ends_at, (windows.c.ends_at - now()).label("rest"))
        )
    ).one()
    return row.granted, row.ends_at, row.rest
