"""The stored places of workers, and the actor that answers for them (B16)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import delete, func, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.bus.actor import Actor, RpcContext
from mcpfleet.contracts.places import LEASE, MOST_PLACES, PLACE, HeldPlace, HoldPlaces, PlacesHeld
from mcpfleet.store.engine import Store
from mcpfleet.store.sql import insert_into, now
from mcpfleet.subscriptions.tables import place_workers as workers
from mcpfleet.subscriptions.tables import places

_GROUP: Final = "subscriptions"
_KEPT: Final = 60.0
"""Seconds for which the row of a worker stays after its lease, so that the sweep has little to do."""


class PlaceRepository:
    """The tables of places. Every method raises `StoreError` where the database does not do its work."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def hold(self, pool: str, wanted: HoldPlaces) -> PlacesHeld:
        """Renew a worker's lease, free places of it, and give it the wanted one if no living worker has it."""
        async with self._store.write() as connection:
            is_known = await _lease(connection, pool, wanted.worker)
            if wanted.free:
                freed = [(each.key, each.claim) for each in wanted.free]
                own = (places.c.pool == pool) & (places.c.worker == wanted.worker)
                await connection.execute(delete(places).where(own, tuple_(places.c.key, places.c.claim).in_(freed)))
            holder = None if wanted.take is None else await _take(connection, pool, wanted.worker, wanted.take)
        return PlacesHeld(is_known=is_known, holder=holder)

    async def sweep(self) -> None:
        """Delete the places of workers whose leases ended long ago."""
        over = workers.c.leased_at < now() - _KEPT
        async with self._store.read() as connection:
            if await connection.scalar(select(workers.c.worker).where(over).limit(1)) is None:
                return
        async with self._store.write() as connection:
            gone = delete(workers).where(over).returning(workers.c.pool, workers.c.worker)
            for pool, worker in (await connection.execute(gone)).all():
                await connection.execute(delete(places).where(places.c.pool == pool, places.c.worker == worker))


async def _lease(connection: AsyncConnection, pool: str, worker: str) -> bool:
    """Renew a lease, or begin one, with which no former place is the worker's; returns whether it was renewed."""
    own = (workers.c.pool == pool) & (workers.c.worker == worker)
    lives = workers.c.leased_at >= now() - LEASE
    if (await connection.execute(update(workers).where(own, lives).values(leased_at=now()))).rowcount == 1:
        return True
    begun = insert_into(workers, connection).values(pool=pool, worker=worker, leased_at=now())
    await connection.execute(begun.on_conflict_do_update(index_elements=["pool", "worker"], set_={"leased_at": now()}))
    await connection.execute(delete(places).where(places.c.pool == pool, places.c.worker == worker))
    return False


async def _take(connection: AsyncConnection, pool: str, worker: str, wanted: HeldPlace) -> str | None:
    """Take a place that no living worker has; returns its holder, or None where the pool has as many as may be."""
    here = (places.c.pool == pool) & (places.c.key == wanted.key)
    if await connection.scalar(select(places.c.worker).where(here)) is None:
        count = select(func.count()).select_from(places).where(places.c.pool == pool)
        if (await connection.scalar(count) or 0) >= MOST_PLACES:
            return None
        row = insert_into(places, connection).values(pool=pool, key=wanted.key, worker=worker, claim=wanted.claim)
        await connection.execute(row.on_conflict_do_nothing())
    # Locked until the commit: of two workers that find its holder gone, one takes it.
    holder: str | None = await connection.scalar(select(places.c.worker).where(here).with_for_update())
    if holder is None:  # freed meanwhile; the next call finds it free
        return None
    if holder != worker:
        lease = select(workers.c.worker).where(
            workers.c.pool == pool, workers.c.worker == holder, workers.c.leased_at >= now() - LEASE
        )
        if await connection.scalar(lease) is not None:
            return holder
    await connection.execute(update(places).where(here).values(worker=worker, claim=wanted.claim))
    return worker


class PlacesActor:
    """Answers what workers ask about places."""

    def __init__(self, repository: PlaceRepository) -> None:
        self._repository = repository

    async def register(self, actor: Actor) -> None:
        """Answer from now on."""
        await actor.answer(PLACE, self.hold, group=_GROUP)

    async def hold(self, question: HoldPlaces, context: RpcContext) -> PlacesHeld:
        """Renew a worker's lease, and give it a place or name its holder."""
        return await self._repository.hold(context.tokens["pool"], question)
