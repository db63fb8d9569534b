"""The bytes of files, by pool and digest: brought by workers in chunks, fetched by edges (X2, X5)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from sqlalchemy import ColumnElement, and_, delete, exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.bus.errors import Failed, Fault, UnreadableAnswer
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.catalog.tables import chunks, files, manifest_files, pools, workers
from mcpfleet.contracts.files import FILE_PUT, PutChunk, decoded
from mcpfleet.contracts.manifest import CHUNK, FileRef
from mcpfleet.store.engine import Store
from mcpfleet.store.sql import insert_into, now


class FileRepository:
    """The tables of files. Every method raises `StoreError` where the database does not do its work."""

    def __init__(self, store: Store, settings: CatalogSettings) -> None:
        self._store = store
        self._settings = settings

    async def put(self, pool: str, chunk: PutChunk) -> bool:
        """Keep a part of a file, and return whether the file is whole. Its digest is checked with the last part.

        Raises:
            Failed: `contract` where the part does not fit its file, or the file its digest; nothing of the file is
                kept then. `refused` where the pool has too many bytes.
        """
        body = self._checked(chunk)
        mine = and_(files.c.pool == pool, files.c.digest == chunk.digest)
        async with self._store.write() as connection:
            if await connection.scalar(select(files.c.is_whole).where(mine)):
                return True
            await self._check_room(connection, pool, chunk)
            # Taken before its parts, so that two workers that bring the same file take turns.
            await connection.execute(
                insert_into(files, connection)
                .values(pool=pool, digest=chunk.digest, size=chunk.size, is_whole=False, unused_since=now())
                .on_conflict_do_update(index_elements=["pool", "digest"], set_={"size": chunk.size})
            )
            await connection.execute(
                insert_into(chunks, connection)
                .values(pool=pool, digest=chunk.digest, number=chunk.number, body=body)
                .on_conflict_do_update(index_elements=["pool", "digest", "number"], set_={"body": body})
            )
            if (chunk.number + 1) * CHUNK < chunk.size:
                return False
            is_right = await _digest(connection, pool, chunk.digest) == chunk.digest
            if is_right:
                await connection.execute(update(files).where(mine).values(is_whole=True))
            else:
                await connection.execute(delete(files).where(mine))
        if not is_right:
            raise _broken("digest: must be the digest of the file's bytes")
        return True

    def _checked(self, chunk: PutChunk) -> bytes:
        """Return a part's bytes, once they are as many as its place says."""
        limit = self._settings.file_limit
        if chunk.size > limit:
            raise _broken(f"size: {chunk.size} bytes are over the limit of {limit} (MCPFLEET_FILE_LIMIT)")
        try:
            body = decoded(chunk.data)
        except UnreadableAnswer:
            raise _broken("data: must be Base64") from None
        begin = chunk.number * CHUNK
        if (chunk.size <= begin and chunk.number) or len(body) != min(CHUNK, chunk.size - begin):
            raise _broken(f"data: every chunk but the last has {CHUNK} bytes")
        return body

    async def _check_room(self, connection: AsyncConnection, pool: str, chunk: PutChunk) -> None:
        """Bound what one pool can make the catalog store: twice its limit, since a rollout has two sets of files."""
        others = and_(files.c.pool == pool, files.c.digest != chunk.digest)
        held = await connection.scalar(select(func.coalesce(func.sum(files.c.size), 0)).where(others)) or 0
        if held + chunk.size > 2 * self._settings.files_limit:
            raise Failed(
                Fault.REFUSED, f"the pool {pool} already has {held} bytes of files (twice MCPFLEET_FILES_LIMIT)"
            )

    async def get(self, pool: str, digest: str, number: int) -> bytes:
        """Return a part of a whole file.

        Raises:
            Failed: `unknown` where there is none.
        """
        found = (
            select(chunks.c.body)
            .join(files, and_(files.c.pool == chunks.c.pool, files.c.digest == chunks.c.digest))
            .where(chunks.c.pool == pool, chunks.c.digest == digest, chunks.c.number == number, files.c.is_whole)
        )
        async with self._store.read() as connection:
            body: bytes | None = await connection.scalar(found)
        if body is None:
            raise Failed(Fault.UNKNOWN, f"the pool {pool} has no such part of a file")
        return body

    async def collect(self) -> None:
        """Delete the bytes that nothing has named for as long as MCPFLEET_FILES_KEPT says."""
        async with self._store.write() as connection:
            await connection.execute(
                update(files).where(files.c.unused_since.is_(None), ~_is_named()).values(unused_since=now())
            )
            await connection.execute(
                update(files).where(files.c.unused_since.is_not(None), _is_named()).values(unused_since=None)
            )
            old = files.c.unused_since < now() - self._settings.files_kept
            await connection.execute(delete(files).where(old, ~_is_named()))


async def note_files(connection: AsyncConnection, manifest: str, refs: Iterable[FileRef]) -> None:
    """Note the files that a new manifest names."""
    if rows := [{"manifest": manifest, "digest": ref.digest} for ref in refs]:
        await connection.execute(insert_into(manifest_files, connection).on_conflict_do_nothing(), rows)


async def missing_files(connection: AsyncConnection, pool: str, manifest: str, most: int) -> tuple[str, ...]:
    """Return digests of a noted manifest's files that the pool has not brought; the others stay from now on."""
    named = select(manifest_files.c.digest).where(manifest_files.c.manifest == manifest)
    mine = and_(files.c.pool == pool, files.c.digest.in_(named))
    # This waits for a replica that is deleting them, and keeps the next from it until this transaction ends.
    await connection.execute(update(files).where(mine, files.c.unused_since.is_not(None)).values(unused_since=None))
    whole = exists().where(files.c.pool == pool, files.c.digest == manifest_files.c.digest, files.c.is_whole)
    rows = await connection.scalars(named.where(~whole).order_by(manifest_files.c.digest).limit(most))
    return tuple(rows)


def _is_named() -> ColumnElement[bool]:
    """Whether a worker of the file's pool announces it, or the pool lists it."""
    by = manifest_files.c.digest == files.c.digest
    announced = exists().where(workers.c.pool == files.c.pool, workers.c.digest == manifest_files.c.manifest, by)
    listed = exists().where(pools.c.pool == files.c.pool, pools.c.digest == manifest_files.c.manifest, by)
    return or_(announced, listed)


async def _digest(connection: AsyncConnection, pool: str, digest: str) -> str:
    """Return the digest of the parts that are there; one at a time is in memory."""
    mine = select(chunks.c.number).where(chunks.c.pool == pool, chunks.c.digest == digest).order_by(chunks.c.number)
    found = hashlib.sha256()
    for number in (await connection.scalars(mine)).all():
        part = select(chunks.c.body).where(chunks.c.pool == pool, chunks.c.digest == digest, chunks.c.number == number)
        found.update(await connection.scalar(part) or b"")
    return f"sha256:{found.hexdigest()}"


def _broken(rule: str) -> Failed:
    return Failed(Fault.CONTRACT, f"{FILE_PUT.subject}: {rule}")
