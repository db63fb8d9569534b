"""The catalog's tables: each method is one transaction, and any number of replicas run them side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import anyio
import anyio.to_thread
from sqlalchemy import delete, distinct, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import Failed, Fault
from mcpfleet.catalog import observation
from mcpfleet.catalog.files import missing_files, note_files
from mcpfleet.catalog.manifests import read_manifest
from mcpfleet.catalog.rebuild import Rebuilder, Rebuilt, read_snapshot
from mcpfleet.catalog.rules import UNNUMBERED, Key, holdings
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.catalog.tables import SCHEMA, endpoints, manifests, pools, workers
from mcpfleet.contracts.catalog import Announce, Announced, Snapshot, SnapshotAnswer, Withdrawn
from mcpfleet.contracts.manifest import Manifest
from mcpfleet.store.engine import Store
from mcpfleet.store.errors import StoreConflict
from mcpfleet.store.migrate import check_migrated
from mcpfleet.store.sql import insert_into, now

_READERS: Final = 2
"""Announced manifests that are parsed at once, each in a thread."""
_MOST_MISSING: Final = 1_000
"""Missing files that one answer names."""


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep: its observation and its changes."""

    seen: observation.Observation
    rebuilt: tuple[Rebuilt, ...] = ()
    was_due: bool = False
    """The tables were behind, so the sweep had work to do."""


class CatalogRepository:
    """The catalog's tables. Every method raises `StoreError` where the database does not do its work."""

    def __init__(self, store: Store, settings: CatalogSettings, *, log: FilteringBoundLogger) -> None:
        self._store = store
        self._settings = settings
        self._rebuild = Rebuilder(settings, log)
        self._readers = anyio.CapacityLimiter(_READERS)
        self._snapshots: dict[str, tuple[str, Snapshot]] = {}
        """Each endpoint's newest snapshot, parsed, with the digest of its content."""

    async def hear(self, pool: str, process: str, digest: str) -> bool:
        """Note that a known worker announces the same manifest again; false where it is new, or the manifest is.

        In the steady state this is the only statement, and touches one row.
        """
        heard = update(workers).where(workers.c.pool == pool, workers.c.process == process, workers.c.digest == digest)
        async with self._store.write() as connection:
            return (await connection.execute(heard.values(announced_at=now()))).rowcount == 1

    async def count_in(self, pool: str, announced: Announce) -> Announced:
        """Count a worker in with its manifest, unless the manifest's text or some of its files are missing.

        Returns:
            The missing parts; none where the worker counts.

        Raises:
            Failed: `contract` where the announcement breaks a rule, `refused` where the pool has too many of a kind.
        """
        manifest: Manifest | None = None
        if announced.manifest is not None:
            manifest = await anyio.to_thread.run_sync(
                read_manifest, announced.manifest, announced.digest, self._settings,
                limiter=self._readers, abandon_on_cancel=True,
            )  # fmt: skip
        async with self._store.write() as connection:
            if not await _know(connection, announced):
                return Announced(wanted=True)
            if manifest is not None:
                await note_files(connection, announced.digest, manifest.files.values())
            if missing := await missing_files(connection, pool, announced.digest, _MOST_MISSING):
                return Announced(files=missing)
            await self._check_bounds(connection, pool, announced)
            await connection.execute(
                insert_into(workers, connection)
                .values(pool=pool, process=announced.process, digest=announced.digest, announced_at=now())
                .on_conflict_do_update(
                    index_elements=["pool", "process"], set_={"digest": announced.digest, "announced_at": now()}
                )
            )
        return Announced()

    async def _check_bounds(self, connection: AsyncConnection, pool: str, announced: Announce) -> None:
        """Bound what one pool can make the catalog store: workers are the least trusted processes."""
        count, kinds = (
            await connection.execute(
                select(func.count(), func.count(distinct(workers.c.digest))).where(
                    workers.c.pool == pool, workers.c.process != announced.process
                )
            )
        ).one()
        if count >= self._settings.pool_workers:
            raise Failed(Fault.REFUSED, f"the pool {pool} already has {count} workers (MCPFLEET_POOL_WORKERS)")
        known = await connection.scalar(
            select(workers.c.pool).where(workers.c.pool == pool, workers.c.digest == announced.digest).limit(1)
        )
        if known is None and kinds >= self._settings.pool_manifests:
            raise Failed(Fault.REFUSED, f"the pool {pool} already has {kinds} manifests (MCPFLEET_POOL_MANIFESTS)")

    async def leave(self, pool: str, process: str) -> None:
        """Count a worker out."""
        left = delete(workers).where(workers.c.pool == pool, workers.c.process == process)
        async with self._store.write() as connection:
            await connection.execute(left)

    async def snapshot(self, endpoint: str, known: int | None) -> SnapshotAnswer:
        """Answer with the endpoint's newest number, and with its snapshot unless that number is the known one.

        Until a pool serves the endpoint, the number is 0 and there is no snapshot.

        Raises:
            Failed: `unknown` where the endpoint never existed. `unavailable` where a newer release wrote the snapshot
                and this one cannot read it; a replica of that release can.
        """
        mine = endpoints.c.endpoint == endpoint
        async with self._store.read() as connection:
            found = (await connection.execute(select(endpoints.c.number, endpoints.c.digest).where(mine))).first()
            if found is None:
                raise Failed(Fault.UNKNOWN, f"no endpoint {endpoint} (MCPFLEET_ENDPOINTS)")
            number, digest = found
            if number in (UNNUMBERED, known):
                return SnapshotAnswer(number=number)
            cached = self._snapshots.get(endpoint)
            if cached is None or (cached[0], cached[1].number) != (digest, number):
                digest, body = (
                    await connection.execute(select(endpoints.c.digest, endpoints.c.body).where(mine))
                ).one()
                snapshot = read_snapshot(body)
                if snapshot is None:
                    raise Failed(Fault.UNAVAILABLE, f"this release cannot read the snapshot {number} of {endpoint}")
                cached = self._snapshots[endpoint] = digest, snapshot
        return SnapshotAnswer(number=cached[1].number, snapshot=cached[1])

    async def withdraw(self, pool: str) -> tuple[Withdrawn, list[Rebuilt]]:
        """End a pool that lingers without workers; a pool with workers stays."""
        async with self._store.write() as connection:
            await observation.read_endpoints(connection, lock=True)
            count = await connection.scalar(select(func.count()).where(workers.c.pool == pool))
            if count:
                return Withdrawn(definitions=0, workers=count), []
            shown = await _shown(connection, pool)
            await connection.execute(delete(pools).where(pools.c.pool == pool))
            rebuilt = await self._rebuild.perform(connection, lost=None)
        await self._forget_strays()
        return Withdrawn(definitions=shown, workers=0), rebuilt

    async def check(self) -> None:
        """Refuse to serve on tables that are older than this release.

        Raises:
            ConfigurationError: the tables are older; the sentence says what to run.
        """
        await check_migrated(self._store, SCHEMA)

    async def sweep(self, *, lost: float | None) -> SweepResult:
        """Bring pools and snapshots up to date with what workers announce; takes no lock where nothing is to do.

        Args:
            lost: seconds of silence after which a worker counts no more; None while silence does not count.
        """
        async with self._store.read() as connection:
            seen = await observation.observe(connection, self._settings, lost=lost)
        self._rebuild.watch_settings(seen)
        if not self._rebuild.is_due(seen):
            return SweepResult(seen)
        async with self._store.write() as connection:
            rebuilt = await self._rebuild.perform(connection, lost=lost)
        await self._forget_strays()
        return SweepResult(seen, tuple(rebuilt), was_due=True)

    async def _forget_strays(self) -> None:
        """Delete manifests that nothing refers to."""
        try:
            async with self._store.write() as connection:
                await connection.execute(delete(manifests).where(observation.is_stray()))
        except StoreConflict:
            return  # a worker announced one of them meanwhile; the next sweep looks again


async def _know(connection: AsyncConnection, announced: Announce) -> bool:
    """Keep the manifest from being deleted until the transaction ends; false where its text is missing."""
    row = select(manifests.c.digest).where(manifests.c.digest == announced.digest)
    if await connection.scalar(row.with_for_update(read=True, key_share=True)) is not None:
        return True
    if announced.manifest is None:
        return False
    await connection.execute(
        insert_into(manifests, connection)
        .values(digest=announced.digest, body=announced.manifest, first_announced=now())
        # The update changes nothing and takes the lock: two workers may bring the same manifest at once.
        .on_conflict_do_update(index_elements=["digest"], set_={"digest": announced.digest})
    )
    return True


async def _shown(connection: AsyncConnection, pool: str) -> int:
    """Count the definitions of a pool that endpoints show."""
    shown: set[Key] = set()
    for body in await connection.scalars(select(endpoints.c.body).where(endpoints.c.number > UNNUMBERED)):
        if snapshot := read_snapshot(body):
            shown |= {key for key, held in holdings(snapshot).items() if held.pool == pool}
    return len(shown)
