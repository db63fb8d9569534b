"""Bringing pools and snapshots up to what workers announce, in one transaction that nobody else runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.catalog import observation
from mcpfleet.catalog.charge import Book, is_ours, may_take
from mcpfleet.catalog.observation import Observation
from mcpfleet.catalog.rules import (
    Decision,
    Empties,
    Ends,
    Lists,
    Merged,
    Pool,
    Refusal,
    Serving,
    decide,
    holders,
    inputs_digest,
    is_change,
    merge,
)
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.catalog.tables import endpoints, manifests, pools, workers
from mcpfleet.contracts.catalog import Snapshot
from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.contracts.manifest import Manifest
from mcpfleet.store.clock import now
from mcpfleet.store.insert import insert_into


@dataclass(frozen=True)
class Rebuilt:
    """An endpoint that was merged again."""

    endpoint: str
    number: int
    is_new: bool
    """The snapshot changed: the number grew by one."""
    size: int
    """How many definitions it lists."""
    refusals: tuple[Refusal, ...]


class Rebuild:
    """Decides whether anything is to be done, and does it."""

    def __init__(self, settings: CatalogSettings) -> None:
        self._settings = settings
        self._manifests: dict[str, Manifest] = {}
        """Those that pools list, parsed: a digest's text never changes."""

    def is_due(self, seen: Observation, *, starting: bool) -> bool:
        """Whether the tables are behind what workers announce, as far as a look without locks can tell."""
        if starting or seen.has_silent or seen.has_stray or decide(seen.tallies, seen.pools):
            return True
        books = {book.endpoint: book for book in seen.books}
        return any(self._is_behind(books.get(name), name, seen.pools) for name in self._settings.endpoints)

    def _is_behind(self, book: Book | None, name: str, listed: Sequence[Pool]) -> bool:
        endpoint = self._settings.endpoints[name]
        if book is None:
            return True
        if is_ours(book, endpoint, self._settings.catalog_revision):
            return book.is_stale or book.inputs != inputs_digest(endpoint, listed)
        return may_take(book, self._settings.catalog_revision, starting=False)

    async def perform(
        self, connection: AsyncConnection, *, lost: float | None, starting: bool = False
    ) -> list[Rebuilt]:
        """Do what is to be done, in the caller's transaction.

        Args:
            connection: a transaction for writing.
            lost: how many seconds of a worker's silence count, none where silence does not count now.
            starting: this replica starts, and its settings are in charge from now on.
        """
        await self._open_books(connection)
        books = await observation.read_books(connection, self._settings, lock=True)
        if lost is not None:
            await connection.execute(delete(workers).where(observation.is_silent(lost)))
        listed = await observation.read_pools(connection, self._settings)
        for decision in decide(await observation.read_tallies(connection), listed):
            await _apply(connection, decision)
        listed = await observation.read_pools(connection, self._settings)
        rebuilt = [await self._write_up(connection, book, listed, starting=starting) for book in books]
        return [each for each in rebuilt if each is not None]

    async def _open_books(self, connection: AsyncConnection) -> None:
        """Make the rows of new endpoints, whose settings nobody is in charge of yet."""
        for name in sorted(self._settings.endpoints):
            await connection.execute(
                insert_into(endpoints, connection)
                .values(
                    endpoint=name, number=0, revision=-1, settings="", charged_at=now(), inputs="", digest="", body=""
                )
                .on_conflict_do_nothing()
            )

    async def _write_up(
        self, connection: AsyncConnection, book: Book, listed: Sequence[Pool], *, starting: bool
    ) -> Rebuilt | None:
        """Merge one endpoint, if our settings are in charge of it and its pools list something else than before."""
        endpoint = self._settings.endpoints.get(book.endpoint)
        revision = self._settings.catalog_revision
        if endpoint is None:
            return None
        ours = is_ours(book, endpoint, revision)
        if not ours and not may_take(book, revision, starting=starting):
            return None
        inputs = inputs_digest(endpoint, listed)
        charge = {"revision": revision, "settings": endpoint.digest, "charged_at": now(), "inputs": inputs}
        if ours and inputs == book.inputs:
            await _update(connection, book, charge)
            return None
        merged = await self._merge(connection, book, endpoint, listed)
        is_new = is_change(book, merged)
        number = book.number + is_new
        if is_new:
            snapshot = merged.snapshot.model_copy(update={"number": number})
            charge |= {"number": number, "digest": merged.digest, "body": snapshot.model_dump_json()}
        await _update(connection, book, charge)
        return Rebuilt(book.endpoint, number, is_new, len(merged.snapshot.listed), merged.refusals)

    async def _merge(
        self, connection: AsyncConnection, book: Book, endpoint: Endpoint, listed: Sequence[Pool]
    ) -> Merged:
        body = await connection.scalar(select(endpoints.c.body).where(endpoints.c.endpoint == book.endpoint))
        held = holders(Snapshot.model_validate_json(body)) if body else {}
        await self._load(connection, {pool.digest for pool in listed})
        serving = [Serving(pool.name, pool.since, self._manifests[pool.digest]) for pool in listed]
        return merge(book.endpoint, endpoint, serving, held, limit=self._settings.snapshot_limit)

    async def _load(self, connection: AsyncConnection, digests: set[str]) -> None:
        """Have these manifests parsed, and no others."""
        self._manifests = {digest: self._manifests[digest] for digest in digests & self._manifests.keys()}
        missing = digests - self._manifests.keys()
        rows = await connection.execute(
            select(manifests.c.digest, manifests.c.body).where(manifests.c.digest.in_(missing))
        )
        for digest, body in rows:
            self._manifests[digest] = Manifest.model_validate_json(body)


async def _apply(connection: AsyncConnection, decision: Decision) -> None:
    match decision:
        case Lists(pool, digest):
            listing = insert_into(pools, connection).values(pool=pool, digest=digest, since=now())
            await connection.execute(
                listing.on_conflict_do_update(index_elements=["pool"], set_={"digest": digest, "emptied_at": None})
            )
        case Empties(pool):
            await connection.execute(update(pools).where(pools.c.pool == pool).values(emptied_at=now()))
        case Ends(pool):
            await connection.execute(delete(pools).where(pools.c.pool == pool))


async def _update(connection: AsyncConnection, book: Book, values: dict[str, Any]) -> None:
    await connection.execute(update(endpoints).where(endpoints.c.endpoint == book.endpoint).values(**values))
