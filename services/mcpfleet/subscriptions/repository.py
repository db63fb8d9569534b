"""The stream counts of edges: each method is one transaction, and any number of replicas run them side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import delete, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.contracts.subscriptions import Count
from mcpfleet.store.engine import Store
from mcpfleet.store.migrate import check_migrated
from mcpfleet.store.sql import insert_into, now
from mcpfleet.subscriptions.rules import has_room
from mcpfleet.subscriptions.tables import SCHEMA, counts, edges, partitions

_NOTHING_KEPT: Final = 60.0
"""Seconds for which a count of zero is kept, so that an older message that arrives late changes nothing."""


class StreamRepository:
    """The tables of stream counts. Every method raises `StoreError` where the database does not do its work."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def open(self, edge: str, sequence: int, count: Count, *, limit: int, lost: float | None) -> bool:
        """Count one more stream, if the partition has room for it; the same question twice counts it once.

        Args:
            edge: who asks.
            sequence: of its message.
            count: its streams of the partition, including the new one.
            limit: how many the partition may have at all edges together.
            lost: seconds of silence after which an edge's streams count no more; None where all count.
        """
        async with self._store.write() as connection:
            await _lock(connection, count)
            leased = insert_into(edges, connection).values(edge=edge, leased_at=now())
            await connection.execute(leased.on_conflict_do_nothing())
            living = select(func.coalesce(func.sum(counts.c.streams), 0)).where(
                counts.c.endpoint == count.endpoint,
                counts.c.partition == count.partition,
                counts.c.edge != edge,
                counts.c.edge == edges.c.edge,
            )
            if lost is not None:
                living = living.where(edges.c.leased_at >= now() - lost)
            if not has_room(await connection.scalar(living) or 0, count.streams, limit):
                return False
            await _write(connection, edge, sequence, [count])
        return True

    async def restate(self, edge: str, sequence: int, told: Iterable[Count]) -> None:
        """Store how many streams an edge has, unless a later message has stored it already."""
        async with self._store.write() as connection:
            await _write(connection, edge, sequence, sorted(told, key=lambda each: (each.endpoint, each.partition)))

    async def lease(self, edge: str) -> bool:
        """Note that an edge lives; false where it was forgotten, so that it must tell its counts again.

        In the steady state this is one statement, which touches one row.
        """
        async with self._store.write() as connection:
            renewed = update(edges).where(edges.c.edge == edge).values(leased_at=now())
            if (await connection.execute(renewed)).rowcount == 1:
                return True
            made = insert_into(edges, connection).values(edge=edge, leased_at=now())
            await connection.execute(made.on_conflict_do_update(index_elements=["edge"], set_={"leased_at": now()}))
        return False

    async def sweep(self, *, lost: float | None) -> list[str]:
        """Delete the rows of lost edges, and of partitions without streams; returns the lost edges."""
        async with self._store.write() as connection:
            gone: list[str] = []
            if lost is not None:
                silent = delete(edges).where(edges.c.leased_at < now() - lost).returning(edges.c.edge)
                gone = list(await connection.scalars(silent))
            await connection.execute(delete(counts).where(~exists().where(edges.c.edge == counts.c.edge)))
            nothing = delete(counts).where(counts.c.streams == 0, counts.c.changed_at < now() - _NOTHING_KEPT)
            await connection.execute(nothing)
            counted = exists().where(
                counts.c.endpoint == partitions.c.endpoint, counts.c.partition == partitions.c.partition
            )
            await connection.execute(delete(partitions).where(~counted))
        return gone

    async def check(self) -> None:
        """Refuse to serve on tables that are older than this release.

        Raises:
            ConfigurationError: the tables are older; the sentence says what to run.
        """
        await check_migrated(self._store, SCHEMA)


async def _lock(connection: AsyncConnection, count: Count) -> None:
    """Keep others from counting this partition's streams until the transaction ends."""
    row = insert_into(partitions, connection).values(endpoint=count.endpoint, partition=count.partition)
    # The update changes nothing, and takes the lock.
    await connection.execute(
        row.on_conflict_do_update(index_elements=["endpoint", "partition"], set_={"partition": count.partition})
    )


async def _write(connection: AsyncConnection, edge: str, sequence: int, told: list[Count]) -> None:
    """Store counts, unless a later message has stored them already."""
    for count in told:
        values = {"streams": count.streams, "sequence": sequence, "changed_at": now()}
        row = insert_into(counts, connection).values(
            edge=edge, endpoint=count.endpoint, partition=count.partition, **values
        )
        await connection.execute(
            row.on_conflict_do_update(
                index_elements=["edge", "endpoint", "partition"],
                set_=values,
                where=counts.c.sequence < sequence,
            )
        )
