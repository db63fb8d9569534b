"""Announcements for tests of the catalog, whose clock they move: rows are aged, nothing sleeps."""

from __future__ import annotations

from typing import Any

import structlog
from sqlalchemy import update
from structlog.typing import FilteringBoundLogger

from mcpfleet.catalog.repository import CatalogRepository
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.catalog.tables import pools, workers
from mcpfleet.contracts.catalog import Announce, Announced, Snapshot
from mcpfleet.contracts.manifest import Definition, Manifest
from mcpfleet.store.engine import Store


def manifest(*names: str, version: str = "1.0.0", app: str = "library") -> Manifest:
    return Manifest(name=app, version=version, definitions=tuple(tool(name).text for name in names))


def tool(name: str) -> Definition:
    return Definition(kind="tool", name=name, wire={"name": name, "inputSchema": {"type": "object"}})


def repository(store: Store, log: FilteringBoundLogger | None = None, **settings: Any) -> CatalogRepository:
    return CatalogRepository(store, CatalogSettings(**settings), log=log or structlog.get_logger())


async def announce(books: CatalogRepository, pool: str, process: str, what: Manifest) -> None:
    """Announce as a worker does: by digest, and with the text where it is wanted."""
    if await books.hear(pool, process, what.digest):
        return
    if (await books.count_in(pool, Announce(process=process, digest=what.digest))).wanted:
        whole = Announce(process=process, digest=what.digest, manifest=what.text)
        assert await books.count_in(pool, whole) == Announced()


async def snapshot(books: CatalogRepository, endpoint: str = "mcp") -> Snapshot:
    answer = await books.snapshot(endpoint, None)
    assert answer.snapshot is not None
    assert answer.snapshot.number == answer.number
    return answer.snapshot


def listed(snapshot: Snapshot) -> dict[str, str]:
    """The names of a snapshot, in its order, with their pools."""
    return {listed.definition.name: listed.pool for listed in snapshot.listed}


async def silence(store: Store, seconds: float, *processes: str) -> None:
    """Let it be so long since the workers announced themselves."""
    async with store.write() as connection:
        aged = update(workers).values(announced_at=workers.c.announced_at - seconds)
        await connection.execute(aged.where(workers.c.process.in_(processes)))


async def age_emptiness(store: Store, seconds: float) -> None:
    """Let it be so long since the pools lost their last workers."""
    async with store.write() as connection:
        await connection.execute(update(pools).values(emptied_at=pools.c.emptied_at - seconds))
