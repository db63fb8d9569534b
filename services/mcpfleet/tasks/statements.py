"""The statements that every task needs: it is made, read, claimed and settled. Each is composed once, and run often.

PostgreSQL runs each of them as one statement on its driver (`mcpfleet.store.singles`). A transaction of several runs on
SQLite, and on PostgreSQL where more belongs to it. Both are composed of the same columns, values and conditions, and
the same contract tests (`tests/contract/store/test_tasks_*.py`) hold both.

Rows are locked in the order of their ids, so that two writers never wait for each other. The database's clock decides
what is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Double,
    Insert,
    Integer,
    Select,
    String,
    TableValuedAlias,
    Text,
    and_,
    any_,
    bindparam,
    case,
    func,
    literal_column,
    null,
    or_,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import TypeEngine

from mcpfleet.contracts.pool_tasks import ClaimTasks
from mcpfleet.contracts.tasks import Status
from mcpfleet.store.singles import Single, SingleRow, SingleStatements, single
from mcpfleet.store.sql import Moment, insert_for, now, padded
from mcpfleet.tasks.rules import BESIDE, VANISHED_BEFORE_ALONE
from mcpfleet.tasks.tables import BROUGHT, GOING_ON, AnyRow, origins, states

_LOOKED_AT: Final = 8
"""Tasks that a claim looks at beyond those that it wants: some may have to run alone."""
_ZERO: Final[ColumnElement[int]] = literal_column("0")
_ONE: Final[ColumnElement[int]] = literal_column("1")


def _word(status: Status) -> ColumnElement[str]:
    """A status as a part of a statement's text."""
    return literal_column(f"'{status}'", Text)


def _lists(name: str, /, **columns: TypeEngine[Any]) -> TableValuedAlias:
    """A table that PostgreSQL reads from one list for each column; the parameters are named `name_column`."""
    lists = [bindparam(f"{name}_{column}", type_=ARRAY(kind)) for column, kind in columns.items()]
    return func.unnest(*lists).table_valued(*columns, name=name).render_derived(name=name)


def _kind(column: str) -> TypeEngine[Any]:
    """A column's type in a list: of text it is open, since a cast to a length would cut without an error."""
    kind = states.c[column].type
    return Text() if isinstance(kind, String) else kind


# -- made -------------------------------------------------------------------------------------------------------------


def _made(*, is_held: bool) -> dict[str, Any]:
    """The values of a new task beside those that it brings along."""
    common: dict[str, Any] = {
        "status": _word(Status.WORKING),
        "version": _ONE,
        "created_at": now(),
        "updated_at": now(),
        "attempts": _ZERO,
        "vanished": _ZERO,
        "memory": _ZERO,
        "questions": _ZERO,
    }
    if is_held:
        common |= {"fence": _ONE, "holder": bindparam("_holder")}
        common |= {"lease_until": now() + bindparam("_lease", type_=Moment)}
        return common | {"until": now() + bindparam("_run_left", type_=Moment)}
    return common | {"fence": _ZERO, "ready_at": now(), "until": now() + bindparam("_unclaimed", type_=Moment)}


class _Making(NamedTuple):
    states: Insert
    origins: Insert


@cache
def _making(dialect: str, *, is_held: bool) -> _Making:
    brought: dict[str, Any] = {name: bindparam(f"_{name}") for name in BROUGHT}
    texts: dict[str, Any] = {"task": bindparam("_id"), "origin": bindparam("_origin")}
    return _Making(
        insert_for(states, dialect).values({**brought, **_made(is_held=is_held)}).on_conflict_do_nothing(),
        insert_for(origins, dialect).values(texts).on_conflict_do_nothing(),
    )


@cache
def _making_singly() -> Single:
    new = _lists("new", **{name: _kind(name) for name in BROUGHT})
    made = _made(is_held=False)
    rows = insert_for(states, "postgresql").from_select([*BROUGHT, *made], select(*new.c, *made.values()))
    texts = _lists("given", task=Text(), origin=Text())
    both = insert_for(origins, "postgresql").from_select(["task", "origin"], select(*texts.c))
    return single(both.on_conflict_do_nothing().add_cte(rows.on_conflict_do_nothing().cte("made")))


async def make(
    connection: AsyncConnection, tasks: Sequence[tuple[Mapping[str, Any], str]], *, is_held: bool, **times: Any
) -> None:
    """Make tasks in a transaction; those whose ids are there stay as they are.

    Args:
        connection: of the transaction.
        tasks: each by its columns and its origin.
        is_held: their maker holds them.
        times: `unclaimed` in seconds; of held ones `holder`, and `lease` in seconds.
    """
    making = _making(connection.dialect.name, is_held=is_held)
    common = {f"_{name}": value for name, value in times.items()}
    rows = [common | {f"_{name}": value for name, value in columns.items()} for columns, _ in tasks]
    await connection.execute(making.states, rows)
    await connection.execute(making.origins, [{"_id": columns["id"], "_origin": origin} for columns, origin in tasks])


async def make_singly(
    singles: SingleStatements, wanted: Callable[[], Sequence[tuple[Mapping[str, Any], str]]], unclaimed: float
) -> None:
    """Make tasks that wait for a worker; as `make` does.

    Args:
        singles: of the store.
        wanted: says just before they are sent which tasks to make, each by its columns and its origin.
        unclaimed: seconds for which they may wait.
    """
    making = _making_singly()

    def values() -> tuple[object, ...] | None:
        tasks = wanted()
        if not tasks:
            return None
        lists: dict[str, object] = {f"new_{name}": [columns[name] for columns, _ in tasks] for name in BROUGHT}
        lists |= {"given_task": lists["new_id"], "given_origin": [origin for _, origin in tasks]}
        return making.values(lists | {"_unclaimed": unclaimed})

    await singles.fetch(making.text, writes=True, late=values)


# -- read -------------------------------------------------------------------------------------------------------------


def is_live() -> ColumnElement[bool]:
    """Whether a task can be read: it goes on, or its retention does."""
    return or_(states.c.status.in_([_word(status) for status in GOING_ON]), states.c.until > now())


_SHOWN: Final = tuple(
    states.c[name]
    for name in (
        "id", "binding", "endpoint", "pool", "definition", "name", "origin_digest", "status", "version", "created_at",
        "updated_at", "until", "poll_ms", "questions", "message", "policy", "end",
    )
)  # fmt: skip
_OWNED: Final = select(*_SHOWN).where(
    tuple_(states.c.id, states.c.binding).in_(bindparam("_owned", expanding=True)), is_live()
)


@cache
def _owned_singly() -> Single:
    wanted = _lists("wanted", id=Text(), binding=Text())
    is_wanted = and_(states.c.id == wanted.c.id, states.c.binding == wanted.c.binding)
    return single(select(*_SHOWN).select_from(wanted.join(states, is_wanted)).where(is_live()))


async def read(connection: AsyncConnection, wanted: Sequence[tuple[str, str]]) -> Sequence[AnyRow]:
    """Read the live ones of tasks, each by its id and its owner's binding."""
    return (await connection.execute(_OWNED, {"_owned": padded(wanted)})).all()


async def read_singly(singles: SingleStatements, wanted: Sequence[tuple[str, str]]) -> list[SingleRow]:
    """Read the live ones of tasks, as `read` does."""
    reading = _owned_singly()
    ids, bindings = zip(*wanted, strict=True)
    return await singles.fetch(reading.text, *reading.values({"wanted_id": ids, "wanted_binding": bindings}))


# -- claimed ----------------------------------------------------------------------------------------------------------


def _waiting(is_run: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    """The tasks of a pool that wait longest, locked, without those that another claimer is at."""
    return (
        select(states.c.id, (states.c.size + states.c.memory).label("size"), states.c.vanished, states.c.ready_at)
        .where(states.c.pool == bindparam("_pool"), states.c.ready_at <= now(), is_run)
        .order_by(states.c.ready_at)
        .limit(bindparam("_looked_at", type_=Integer))
        .with_for_update(skip_locked=True)
    )


_TAKEN: Final = {
    "fence": states.c.fence + _ONE,
    "holder": bindparam("_holder", type_=Text),
    "claim": bindparam("_claim", type_=Text),
    "lease_until": now() + bindparam("_lease", type_=Moment),
    # The run limit runs from the first claim on, whatever becomes of that.
    "until": case((states.c.fence == _ZERO, now() + states.c.run_left), else_=states.c.until),
    "ready_at": null(),
}
_CLAIMED: Final = (
    states.c.id,
    states.c.fence,
    states.c.definition,
    states.c.name,
    states.c.attempts,
    states.c.vanished,
    (states.c.until - now()).label("limit"),
    states.c.message,
)
_CANDIDATES: Final = _waiting(states.c.definition.in_(bindparam("_definitions", expanding=True)))
_TAKE: Final = (
    update(states).where(states.c.id.in_(bindparam("_ids", expanding=True))).values(_TAKEN).returning(*_CLAIMED)
)
_TEXTS: Final = select(origins.c.task, origins.c.origin).where(origins.c.task.in_(bindparam("_ids", expanding=True)))


@cache
def _claiming_singly() -> Single:
    is_run = states.c.definition == any_(bindparam("_definitions", type_=ARRAY(Text)))
    waiting = _waiting(is_run).cte("waiting").prefix_with("MATERIALIZED")
    is_hard = or_(
        func.sum(waiting.c.size + literal_column(str(BESIDE))) > bindparam("_budget", type_=Double),
        func.max(waiting.c.vanished) >= literal_column(str(VANISHED_BEFORE_ALONE)),
    )
    choice = select(and_(func.count() > _ZERO, is_hard).label("is_hard")).select_from(waiting).cte("choice")
    first = (
        select(waiting.c.id, waiting.c.ready_at.label("since"))
        .order_by(waiting.c.ready_at)
        .limit(bindparam("_most", type_=Integer))
        .subquery("first")
    )
    taken = (
        update(states)
        .where(states.c.id == first.c.id, ~select(choice.c.is_hard).scalar_subquery())
        .values(_TAKEN)
        .returning(*_CLAIMED, first.c.since)
        .cte("taken")
    )
    found = choice.outerjoin(taken, true()).outerjoin(origins, origins.c.task == taken.c.id)
    columns = (choice.c.is_hard, *taken.c, origins.c.origin)
    return single(select(*columns).select_from(found).order_by(taken.c.since))


async def candidates(connection: AsyncConnection, pool: str, wanted: ClaimTasks) -> Sequence[AnyRow]:
    """Lock the tasks that a claimer may get, the longest waiting first: id, size and vanished holders of each."""
    values = {"_pool": pool, "_definitions": wanted.definitions, "_looked_at": wanted.most + _LOOKED_AT}
    return (await connection.execute(_CANDIDATES, values)).all()


async def take(
    connection: AsyncConnection, ids: Sequence[str], wanted: ClaimTasks, lease: float
) -> list[tuple[AnyRow, str]]:
    """Give locked tasks to a claimer, in this order, each with its origin."""
    if not ids:
        return []
    values = {"_ids": padded(ids), "_holder": wanted.process, "_claim": wanted.claim, "_lease": lease}
    rows = {row.id: row for row in await connection.execute(_TAKE, values)}
    texts = {row.task: row.origin for row in await connection.execute(_TEXTS, {"_ids": padded(ids)})}
    return [(rows[task], texts[task]) for task in ids if task in rows]


async def claim_singly(
    singles: SingleStatements, pool: str, wanted: ClaimTasks, *, budget: int, lease: float
) -> list[SingleRow] | None:
    """Take the tasks that wait longest; none where one must run alone, or all are too much for one message.

    Args:
        singles: of the store.
        pool: the claimer's.
        wanted: what it asks for.
        budget: bytes of a message.
        lease: seconds.
    """
    claiming = _claiming_singly()
    values = {
        "_pool": pool,
        "_definitions": wanted.definitions,
        "_looked_at": wanted.most + _LOOKED_AT,
        "_most": wanted.most,
        "_budget": budget,
        "_holder": wanted.process,
        "_claim": wanted.claim,
        "_lease": lease,
    }
    rows = await singles.fetch(claiming.text, *claiming.values(values), writes=True)
    return None if rows[0].is_hard else [row for row in rows if row.id is not None]


# -- settled ----------------------------------------------------------------------------------------------------------


def _settled(status: Any, end: Any, message: Any, progress: Any) -> dict[str, Any]:
    """The values of a task that has ended; a status message that says less than an earlier one is dropped (K27)."""
    is_ahead = or_(states.c.progress.is_(None), progress > states.c.progress)
    is_told = and_(message.is_not(None), or_(progress.is_(None), is_ahead))
    return {
        "status": status,
        "end": end,
        "message": case((is_told, message), else_=states.c.message),
        "progress": case((and_(is_told, progress.is_not(None)), progress), else_=states.c.progress),
        "version": states.c.version + _ONE,
        "updated_at": now(),
        "until": now() + states.c.retention,
        "ready_at": null(),
        "lease_until": null(),
        "questions": _ZERO,
    }


_SETTLE: Final = (
    update(states)
    .where(states.c.id == bindparam("_id"))
    .values(
        fence=bindparam("_fence"),
        **_settled(
            bindparam("_status"),
            bindparam("_end"),
            bindparam("_message", type_=Text),
            bindparam("_progress", type_=Moment),
        ),
    )
)


class HolderEnd(NamedTuple):
    """How a holder ends a task."""

    id: str
    pool: str
    fence: int
    status: str
    end: str | None
    message: str | None
    progress: float | None


@cache
def _settling_singly() -> Single:
    text, number = Text(), Integer()
    ending = _lists("ending", id=text, pool=text, fence=number, status=text, end=text, message=text, progress=Double())
    is_named = states.c.id == any_(bindparam("ending_id", type_=ARRAY(Text)))
    is_held = states.c.lease_until.is_not(None)
    locked = select(states.c.id).where(is_named, is_held).order_by(states.c.id).with_for_update()
    held = locked.cte("held").prefix_with("MATERIALIZED")
    return single(
        update(states)
        .where(
            states.c.id == held.c.id,
            states.c.id == ending.c.id,
            states.c.pool == ending.c.pool,
            states.c.fence == ending.c.fence,
            is_held,
        )
        .values(_settled(ending.c.status, ending.c.end, ending.c.message, ending.c.progress))
        .returning(states.c.id, states.c.fence, states.c.version)
    )


async def settle(connection: AsyncConnection, ends: Sequence[Mapping[str, Any]]) -> None:
    """End locked tasks: each by its `_id`, with `_status`, `_end`, `_message`, `_progress` and its new `_fence`."""
    await connection.execute(_SETTLE, ends)


async def settle_singly(singles: SingleStatements, ends: Sequence[HolderEnd]) -> list[SingleRow]:
    """End tasks as their holders.

    Returns:
        Id, fence and new version of each that was held by that fence.
    """
    settling = _settling_singly()
    values = {f"ending_{name}": [getattr(end, name) for end in ends] for name in HolderEnd.__annotations__}
    return await singles.fetch(settling.text, *settling.values(values), writes=True)
