"""The stored sessions: each change is one transaction, and any number of replicas run them side by side (D11)."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, delete, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.contracts.grants import UriGrant
from mcpfleet.contracts.hints import resource_key
from mcpfleet.contracts.sessions import BeginSession, ChangeSession, Session
from mcpfleet.store.engine import Store
from mcpfleet.store.sql import insert_into, now
from mcpfleet.subscriptions.grants import add_uri, grant_in, grants_of, write_grants
from mcpfleet.subscriptions.rules import changed
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.subscriptions.tables import session_uris, sessions

AT_ONCE: Final = 1_000
"""Sessions that one transaction ends at most; the next one ends more."""
_TOUCHED_EACH: Final = 0.1
"""The part of the idle time for which a session's use is not written again, so that its requests only read."""


class SessionUpdate(NamedTuple):
    """The result of a change."""

    session: Session | None
    """The session now; None where its owner has no such session."""
    is_full: bool = False
    """Nothing was changed, since it subscribes to as many URIs as it may."""
    is_other: bool = False
    """The session changed."""


class SessionRepository:
    """The tables of sessions. Every method raises `StoreError` where the database does not do its work.

    A session that was idle for too long, or is too old, does not exist, whether or not it has been deleted.
    """

    def __init__(self, store: Store, settings: SubscriptionsSettings) -> None:
        self._store = store
        self._settings = settings

    async def begin(self, wanted: BeginSession) -> tuple[bool, list[str]]:
        """Store a session, unless it exists.

        Returns:
            Whether it is new, and the owner's sessions that ended for it, since the owner had too many: the longest
            unused ones.
        """
        async with self._store.write() as connection:
            row = insert_into(sessions, connection).values(
                session=wanted.session,
                owner=wanted.owner,
                revision=wanted.revision,
                client=json.dumps(wanted.client),
                capabilities=json.dumps(wanted.capabilities),
                lists=None if wanted.lists is None else json.dumps(wanted.lists),
                begun_at=now(),
                touched_at=now(),
            )
            made = row.on_conflict_do_nothing().returning(sessions.c.session)
            if await connection.scalar(made) is None:
                return False, []
            return True, await self._evict(connection, wanted)

    async def read(self, session: str, owner: str) -> Session | None:
        """Return a session, or None where its owner has no such session. Notes now and then that it is used."""
        has_uris = exists().where(session_uris.c.session == sessions.c.session)
        kept = select(sessions, self._is_stale().label("is_stale"), has_uris.label("has_uris"))
        async with self._store.read() as connection:
            row = (await connection.execute(kept.where(self._is_there(session, owner)))).one_or_none()
            if row is None:
                return None
            found = _session(row, await _grants(connection, session) if row.has_uris else ())
        if row.is_stale:
            async with self._store.write() as connection:
                touched = update(sessions).where(sessions.c.session == session, self._is_stale())
                await connection.execute(touched.values(touched_at=now()))
        return found

    async def change(self, wanted: ChangeSession) -> SessionUpdate:
        """Change a session, if it exists and has room for the change."""
        # Locked until the commit, so that changes at several edges follow one another.
        kept = select(sessions, self._is_stale().label("is_stale")).with_for_update()
        async with self._store.write() as connection:
            row = (await connection.execute(kept.where(self._is_there(wanted.session, wanted.owner)))).one_or_none()
            if row is None:
                return SessionUpdate(None)
            # A second statement, since it sees what another change wrote while this one waited for the lock.
            before = _session(row, await _grants(connection, wanted.session))
            after = changed(before, wanted, self._settings.session_uris)
            if after is None:
                return SessionUpdate(before, is_full=True)
            if after != before or row.is_stale:
                await _write(connection, wanted.session, before, after)
            has_news = await write_grants(connection, wanted, before.streams, self._settings)
            grants = await _grants(connection, wanted.session) if after.uris else ()
        return SessionUpdate(_with_grants(after, grants), is_other=after != before or has_news)

    async def end(self, session: str, owner: str) -> bool:
        """End a session; returns whether it existed."""
        async with self._store.write() as connection:
            gone = delete(sessions).where(self._is_there(session, owner)).returning(sessions.c.session)
            if await connection.scalar(gone) is None:
                return False
            await _forget_uris(connection, [session])
        return True

    async def count(self) -> int:
        """Return how many sessions there are."""
        async with self._store.read() as connection:
            return await connection.scalar(select(func.count()).select_from(sessions).where(self._lives())) or 0

    async def sweep(self) -> list[str]:
        """Delete up to `AT_ONCE` sessions that are idle or too old; returns them.

        Replicas skip each other's rows. Mostly there is nothing to delete, and the sweep only reads.
        """
        # Two conditions rather than "does not live", so that each is found by its index.
        is_idle = sessions.c.touched_at < now() - self._settings.session_idle
        over = is_idle | (sessions.c.begun_at < now() - self._settings.session_lasts)
        async with self._store.read() as connection:
            if await connection.scalar(select(sessions.c.session).where(over).limit(1)) is None:
                return []
        ended = select(sessions.c.session).where(over).limit(AT_ONCE).with_for_update(skip_locked=True)
        async with self._store.write() as connection:
            return await _delete(connection, list(await connection.scalars(ended)))

    async def _evict(self, connection: AsyncConnection, begun: BeginSession) -> list[str]:
        """End an owner's surplus sessions. Several that begin at once may exceed the bound until the next begins."""
        others = select(sessions.c.session).where(sessions.c.owner == begun.owner, sessions.c.session != begun.session)
        over = others.order_by(sessions.c.touched_at.desc()).offset(self._settings.owner_sessions - 1).limit(AT_ONCE)
        # The offset is in a subquery: in the locking statement PostgreSQL would lock the rows that it skips.
        ended = select(sessions.c.session).where(sessions.c.session.in_(over)).with_for_update(skip_locked=True)
        return await _delete(connection, list(await connection.scalars(ended)))

    def _is_there(self, session: str, owner: str) -> ColumnElement[bool]:
        return (sessions.c.session == session) & (sessions.c.owner == owner) & self._lives()

    def _lives(self) -> ColumnElement[bool]:
        is_used = sessions.c.touched_at >= now() - self._settings.session_idle
        return is_used & (sessions.c.begun_at >= now() - self._settings.session_lasts)

    def _is_stale(self) -> ColumnElement[bool]:
        """Whether the session's use was not noted for a while."""
        return sessions.c.touched_at < now() - self._settings.session_idle * _TOUCHED_EACH


def _session(row: Any, grants: tuple[UriGrant, ...]) -> Session:
    found = Session(
        revision=row.revision,
        client=json.loads(row.client),
        capabilities=json.loads(row.capabilities),
        log_level=row.log_level,
        streams=tuple(stream for stream in (row.stream, row.former_stream) if stream is not None),
        lists=None if row.lists is None else json.loads(row.lists),
    )
    return _with_grants(found, grants)


def _with_grants(session: Session, grants: tuple[UriGrant, ...]) -> Session:
    return session.model_copy(update={"uris": tuple(grant.uri for grant in grants), "grants": grants})


async def _grants(connection: AsyncConnection, session: str) -> tuple[UriGrant, ...]:
    return tuple(grant_in(row) for row in await connection.execute(grants_of(session)))


async def _write(connection: AsyncConnection, session: str, before: Session, after: Session) -> None:
    """Write the differences, and that the session is used."""
    newest, former = (*after.streams, None, None)[:2]
    had, has = bool(before.streams), bool(after.streams)
    await connection.execute(
        update(sessions)
        .where(sessions.c.session == session)
        .values(
            stream_at=sessions.c.stream_at if had == has else now(),
            log_level=after.log_level,
            stream=newest,
            former_stream=former,
            lists=None if after.lists is None else json.dumps(after.lists),
            touched_at=now(),
        )
    )
    for uri in set(before.uris) - set(after.uris):
        mine = (session_uris.c.session == session) & (session_uris.c.uri_key == resource_key(uri))
        await connection.execute(delete(session_uris).where(mine))
    for uri in set(after.uris) - set(before.uris):
        await add_uri(connection, session, uri)


async def _delete(connection: AsyncConnection, ended: list[str]) -> list[str]:
    """Delete sessions that this transaction has locked, with their URIs."""
    if ended:
        await connection.execute(delete(sessions).where(sessions.c.session.in_(ended)))
        await _forget_uris(connection, ended)
    return ended


async def _forget_uris(connection: AsyncConnection, ended: list[str]) -> None:
    """Delete the URIs of ended sessions. Changes lock a session's row, so none adds a URI any more."""
    await connection.execute(delete(session_uris).where(session_uris.c.session.in_(ended)))
