"""The state that the catalog's rules decide on, read from the tables in a few small statements."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, exists, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.catalog.rules import EndpointState, ManifestCount, Pool
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.catalog.tables import endpoints, manifests, pools, workers
from mcpfleet.store.sql import now


@dataclass(frozen=True)
class Observation:
    """Everything that decides whether there is work to do."""

    tallies: tuple[ManifestCount, ...]
    pools: tuple[Pool, ...]
    states: tuple[EndpointState, ...]
    has_silent: bool
    """A worker has been silent for too long, while silence counts."""
    has_stray: bool
    """A manifest is kept that no worker announces and no pool lists."""


async def observe(connection: AsyncConnection, settings: CatalogSettings, *, lost: float | None) -> Observation:
    """Read everything; `lost` is how many seconds of silence count, None while silence does not count."""
    silent = None if lost is None else await connection.scalar(select(workers.c.pool).where(is_silent(lost)).limit(1))
    stray = await connection.scalar(select(manifests.c.digest).where(is_stray()).limit(1))
    return Observation(
        await read_counts(connection),
        await read_pools(connection, settings),
        await read_endpoints(connection),
        has_silent=silent is not None,
        has_stray=stray is not None,
    )


async def read_counts(connection: AsyncConnection) -> tuple[ManifestCount, ...]:
    """Count each pool's workers by what they announce."""
    rows = await connection.execute(
        select(workers.c.pool, workers.c.digest, func.count(), manifests.c.first_announced)
        .join(manifests, manifests.c.digest == workers.c.digest)
        .group_by(workers.c.pool, workers.c.digest, manifests.c.first_announced)
    )
    return tuple(ManifestCount(*row) for row in rows)


async def read_pools(connection: AsyncConnection, settings: CatalogSettings) -> tuple[Pool, ...]:
    """Read what each pool lists, and whether it has lingered for long enough."""
    emptied = pools.c.emptied_at
    rows = await connection.execute(
        select(
            pools.c.pool,
            pools.c.digest,
            pools.c.since,
            emptied.is_not(None),
            func.coalesce(emptied < now() - settings.linger, literal(value=False)),
        )
    )
    return tuple(Pool(*row) for row in rows)


async def read_endpoints(connection: AsyncConnection, *, lock: bool = False) -> tuple[EndpointState, ...]:
    """Read the endpoints' rows; locked, nobody else rebuilds before the transaction ends."""
    statement = select(
        endpoints.c.endpoint,
        endpoints.c.number,
        endpoints.c.revision,
        endpoints.c.settings,
        endpoints.c.inputs,
        endpoints.c.digest,
    ).order_by(endpoints.c.endpoint)
    rows = await connection.execute(statement.with_for_update() if lock else statement)
    return tuple(EndpointState(*row) for row in rows)


def is_silent(lost: float) -> ColumnElement[bool]:
    """Whether a worker's row is older than the silence that it may keep."""
    return workers.c.announced_at < now() - lost


def is_stray() -> ColumnElement[bool]:
    """Whether a manifest's row is not referred to."""
    return and_(
        ~exists().where(workers.c.digest == manifests.c.digest), ~exists().where(pools.c.digest == manifests.c.digest)
    )
