"""The stored grants of sessions: their leases, their renewals, and the changes that were not told (X56 to X59)."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, case, delete, func, literal, null, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.contracts.grants import Holder, NewGrant, UriGrant
from mcpfleet.contracts.hints import OPERATOR_TOKEN, resource_key
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.sessions import ChangeSession
from mcpfleet.store.engine import Store
from mcpfleet.store.sql import insert_into, now, padded
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.subscriptions.tables import session_uris, sessions

AT_ONCE: Final = 256
"""Grants that are renewed together."""
_GENERATIONS: Final = 2**30
"""Generations of new grants begin below this number, each with another one."""
_CLAIMED: Final = 2.0
"""Seconds for which one replica alone renews a grant."""

_uris = session_uris.c


class DueGrant(NamedTuple):
    """A grant whose lease ends soon."""

    session: str
    uri_key: str
    uri: str
    generation: int
    holder: Holder
    is_over: bool
    """Its total time has ended, or its credential has for a while."""
    has_stream: bool
    """Its session has a stream, which needs to know of the lease."""


class HeardAt(NamedTuple):
    """When a URI's hints came, in monotonic seconds."""

    first: float
    last: float


class Heard(NamedTuple):
    """A hint that a URI has changed."""

    endpoint: str
    pool: str
    key: str


def grants_of(session: str) -> Select[Any]:
    """Return the statement that reads a session's grants, for `grant_in`."""
    columns = (_uris.uri, _uris.generation, _uris.dirty, _uris.number, (_uris.lease_until - now()).label("lasts"))
    return select(*columns).where(_uris.session == session).order_by(_uris.uri_key)


def grant_in(row: Any) -> UriGrant:
    """Return the grant in a row."""
    return UriGrant(
        uri=json.loads(row.uri),
        generation=row.generation or 0,
        lasts=row.lasts,
        dirty=max(0, row.dirty or 0),
        number=row.number,
    )


async def write_grants(
    connection: AsyncConnection, wanted: ChangeSession, streams: Collection[str], settings: SubscriptionsSettings
) -> bool:
    """Write what a change of a session says of its grants; the session's row is locked.

    Args:
        connection: within the change's transaction.
        wanted: the change.
        streams: the session's streams before it.
        settings: how long grants last.

    Returns:
        Whether a stream has something to tell that it does not know of.
    """
    mine = _uris.session == wanted.session
    if wanted.subscribe is not None and wanted.grant is not None:
        await _grant(connection, wanted.session, wanted.subscribe, wanted.grant, settings)
    # A stream that the session lists no more tells nothing of what a newer one does.
    if wanted.written and wanted.by in streams:
        for uri, number in wanted.written.items():
            told = mine & (_uris.uri_key == resource_key(uri)) & (_uris.dirty == number)
            await connection.execute(update(session_uris).where(told).values(dirty=-number))
    lost = wanted.lost is not None and wanted.lost in streams
    if lost:
        await connection.execute(update(session_uris).where(mine).values(dirty=_next_change()))
    if wanted.dirty:
        keys = padded([resource_key(uri) for uri in wanted.dirty])
        changed = mine & _uris.uri_key.in_(keys)
        await connection.execute(update(session_uris).where(changed).values(dirty=_next_change()))
    return lost or bool(wanted.dirty)


def _next_change() -> ColumnElement[int]:
    """Return the number of the next change: a later one than each before it, so that no late message clears it."""
    return func.abs(func.coalesce(_uris.dirty, 0)) + 1


async def _grant(
    connection: AsyncConnection, session: str, uri: str, grant: NewGrant, settings: SubscriptionsSettings
) -> None:
    """Decide a grant anew: its generation rises, and its total time stays (X56)."""
    total = func.coalesce(_uris.total_until, now() + settings.grant_total)
    lasts = settings.grant_lasts if grant.lasts is None else min(settings.grant_lasts, grant.lasts)
    values = {
        # A late answer about a row that was deleted must fit no later row of the same URI.
        "generation": func.coalesce(_uris.generation, secrets.randbelow(_GENERATIONS)) + 1,
        "endpoint": grant.holder.endpoint,
        "pool": grant.pool,
        "principal": grant.holder.principal.model_dump_json(),
        "number": grant.holder.number,
        "credential_until": _credential_until(grant.holder),
        "lease_until": _least(now() + lasts, _credential_until(grant.holder)),
        "total_until": total,
        "asked_at": None,
    }
    own = (_uris.session == session) & (_uris.uri_key == resource_key(uri))
    await connection.execute(update(session_uris).where(own).values(**values))


def _credential_until(holder: Holder) -> ColumnElement[float]:
    return null() if holder.credential_lasts is None else now() + holder.credential_lasts  # type: ignore[return-value]


def _least(lease: ColumnElement[float], *others: ColumnElement[float]) -> ColumnElement[float]:
    """Return the least of moments, of which all but the first may be NULL."""
    for other in others:
        lease = case((and_(other.isnot(None), other < lease), other), else_=lease)
    return lease


class GrantRepository:
    """The grants of all sessions. Every method raises `StoreError` where the database does not do its work."""

    def __init__(self, store: Store, settings: SubscriptionsSettings) -> None:
        self._store = store
        self._settings = settings

    async def due(self, policy: int = 0) -> list[DueGrant]:
        """Claim up to `AT_ONCE` grants whose leases are half over. Mostly there are none, and this only reads.

        Args:
            policy: a change of policy; grants that were decided before it are due at once. 0 for none.
        """
        is_due = _uris.lease_until < now() + self._settings.grant_lasts / 2
        if policy:
            is_due = or_(is_due, and_(_uris.lease_until.isnot(None), func.coalesce(_uris.number, 0) < policy))
        is_free = or_(_uris.asked_at.is_(None), _uris.asked_at < now() - _CLAIMED)
        ripe = select(_uris.session, _uris.uri_key, sessions.c.stream).join_from(
            session_uris, sessions, sessions.c.session == _uris.session
        )
        async with self._store.read() as connection:
            rows = await connection.execute(ripe.where(is_due, is_free).order_by(_uris.lease_until).limit(AT_ONCE))
            keys = {(row.session, row.uri_key): row.stream is not None for row in rows}
        if not keys:
            return []
        chosen = tuple_(_uris.session, _uris.uri_key).in_(list(keys))
        # The client of a stream that ended with its credential comes back with a newer one.
        is_over = or_(_uris.total_until <= now(), _uris.credential_until <= now() - self._settings.grant_lasts)
        async with self._store.write() as connection:
            # A second replica that chose the same rows finds them claimed.
            claim = update(session_uris).where(chosen, is_free).values(asked_at=now())
            rows = await connection.execute(claim.returning(session_uris, func.coalesce(is_over, False).label("over")))
            return [_due(row, keys[row.session, row.uri_key]) for row in rows]

    async def extend(self, grant: DueGrant, seconds: float, number: int = 0) -> bool:
        """Extend a lease; return False where the grant was decided anew or ended meanwhile (X56).

        Args:
            grant: the grant.
            seconds: for which it goes on, at most.
            number: the newest revocation that this decision includes.
        """
        lease = now() + min(seconds, self._settings.grant_lasts)
        return await self._write(
            grant,
            lease_until=_least(lease, _uris.credential_until, _uris.total_until),
            asked_at=None,
            number=case((func.coalesce(_uris.number, 0) < number, number), else_=_uris.number),
        )

    async def fence(self, grant: DueGrant) -> bool:
        """End a lease until a renewal succeeds; return False as `extend`."""
        return await self._write(grant, lease_until=now())

    async def _write(self, grant: DueGrant, **values: Any) -> bool:
        own = (_uris.session == grant.session) & (_uris.uri_key == grant.uri_key)
        same = own & (func.coalesce(_uris.generation, 0) == grant.generation)
        async with self._store.write() as connection:
            return (await connection.execute(update(session_uris).where(same).values(**values))).rowcount == 1

    async def retire(self, grant: DueGrant) -> bool:
        """End the session of a grant that was denied, or is over; return False as `extend`, or where it has ended."""
        own = (_uris.session == grant.session) & (_uris.uri_key == grant.uri_key)
        same = own & (func.coalesce(_uris.generation, 0) == grant.generation)
        async with self._store.write() as connection:
            locked = select(sessions.c.session).where(sessions.c.session == grant.session).with_for_update()
            if (
                await connection.scalar(locked) is None
                or await connection.scalar(select(literal(1)).where(same)) is None
            ):
                return False
            await connection.execute(delete(sessions).where(sessions.c.session == grant.session))
            await connection.execute(delete(session_uris).where(_uris.session == grant.session))
        return True

    async def saw(self, session: str, holder: Holder) -> None:
        """Note a later admitted request of a session's owner: its credential may end later (X57)."""
        until = _credential_until(holder)
        is_longer = (
            _uris.credential_until.isnot(None) if holder.credential_lasts is None else _uris.credential_until < until
        )
        is_older = or_(is_longer, _uris.number < holder.number)
        newer = (_uris.session == session) & _uris.lease_until.isnot(None) & is_older
        async with self._store.read() as connection:
            if await connection.scalar(select(literal(1)).where(newer).limit(1)) is None:
                return
        values = {"principal": holder.principal.model_dump_json(), "number": holder.number, "credential_until": until}
        async with self._store.write() as connection:
            await connection.execute(update(session_uris).where(newer).values(**values))

    async def any(self) -> bool:
        """Return whether there is any grant."""
        async with self._store.read() as connection:
            return await connection.scalar(select(literal(1)).select_from(session_uris).limit(1)) is not None

    async def note(self, heard: Mapping[Heard, HeardAt]) -> list[str]:
        """Mark changes that no stream heard of; return the sessions that have a stream now, which must read them (X59).

        A hint was for the session's stream if it came while there was one.
        """
        by_place: dict[tuple[str, str], dict[str, HeardAt]] = {}
        for each, moment in heard.items():
            by_place.setdefault((each.endpoint, each.pool), {})[each.key] = moment
        told: list[str] = []
        for (endpoint, pool), moments in by_place.items():
            told += await self._note_place(endpoint, pool, moments)
        return told

    async def _note_place(self, endpoint: str, pool: str, moments: Mapping[str, HeardAt]) -> list[str]:
        changed = (_uris.endpoint == endpoint) & _uris.uri_key.in_(padded(list(moments)))
        if pool != OPERATOR_TOKEN:
            changed &= _uris.pool == pool
        age = (now() - sessions.c.stream_at).label("age")
        clean = select(_uris.session, _uris.uri_key, sessions.c.stream, age).join_from(
            session_uris, sessions, sessions.c.session == _uris.session
        )
        marked: list[tuple[str, str]] = []
        async with self._store.read() as connection:
            rows = await connection.execute(clean.where(changed, func.coalesce(_uris.dirty, 0) <= 0))
            present = time.monotonic()
            for row in rows:
                first, last = (present - moment for moment in moments[row.uri_key])
                since = math.inf if row.age is None else row.age
                if (last <= since) if row.stream is None else (first >= since):
                    marked.append((row.session, row.uri_key))
        for begin in range(0, len(marked), AT_ONCE):
            chosen = tuple_(_uris.session, _uris.uri_key).in_(marked[begin : begin + AT_ONCE])
            async with self._store.write() as connection:
                await connection.execute(update(session_uris).where(chosen).values(dirty=_next_change()))
        return await self._with_streams({session for session, _ in marked})

    async def _with_streams(self, names: Iterable[str]) -> list[str]:
        """Return those of these sessions that have a stream now: one may have opened before the marks were there."""
        ordered, found = sorted(names), list[str]()
        for begin in range(0, len(ordered), AT_ONCE):
            some = padded(ordered[begin : begin + AT_ONCE])
            mine = sessions.c.session.in_(some) & sessions.c.stream.is_not(None)
            async with self._store.read() as connection:
                found += await connection.scalars(select(sessions.c.session).where(mine))
        return found

    async def note_gap(self) -> None:
        """Mark every URI of the sessions without a stream: hints may have been lost."""
        without = select(sessions.c.session).where(sessions.c.session == _uris.session, sessions.c.stream.is_(None))
        clean = without.exists() & (func.coalesce(_uris.dirty, 0) <= 0)
        async with self._store.write() as connection:
            await connection.execute(update(session_uris).where(clean).values(dirty=_next_change()))

    async def drop_streams(self, edges: Iterable[str]) -> list[str]:
        """Remove the streams of edges that have died, and mark their URIs; return the sessions with another stream."""
        found: list[str] = []
        for edge in edges:
            async with self._store.write() as connection:
                mine = sessions.c.stream.like(f"{edge}%")
                former = select(sessions.c.session, sessions.c.former_stream).where(mine).with_for_update()
                rows = list(await connection.execute(former))
                if rows:
                    # By a query: an edge may have more sessions than a statement may have parameters.
                    lost = _uris.session.in_(select(sessions.c.session).where(mine))
                    await connection.execute(update(session_uris).where(lost).values(dirty=_next_change()))
                    promoted = {"stream": sessions.c.former_stream, "former_stream": None, "stream_at": now()}
                    await connection.execute(update(sessions).where(mine).values(**promoted))
                await connection.execute(
                    update(sessions).where(sessions.c.former_stream.like(f"{edge}%")).values(former_stream=None)
                )
                found += [row.session for row in rows if row.former_stream is not None]
        return found


def _due(row: Any, has_stream: bool) -> DueGrant:
    principal = Principal() if row.principal is None else Principal.model_validate_json(row.principal)
    holder = Holder(endpoint=row.endpoint, principal=principal, number=row.number or 0)
    uri, generation = json.loads(row.uri), row.generation or 0
    return DueGrant(row.session, row.uri_key, uri, generation, holder, bool(row.over), has_stream)


async def add_uri(connection: AsyncConnection, session: str, uri: str) -> None:
    """Make the row of a URI, which a grant fills."""
    row = insert_into(session_uris, connection)
    await connection.execute(row.values(session=session, uri_key=resource_key(uri), uri=json.dumps(uri)))
