"""What one service may take of its database, and the one place of the defaults."""

from __future__ import annotations

from dataclasses import dataclass

import anyio


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What one service may take of its database; seconds."""

    connections: int = 10
    connect: float = 5.0
    statement: float = 10.0
    """For one statement, and for a wait for a connection, for a lock, and for the next statement of a transaction."""

    @property
    def transaction(self) -> float:
        """For a whole transaction, the making of its connection included."""
        return self.connect + 3 * self.statement


async def take_places(bounds: Bounds, *places: anyio.Semaphore) -> bool:
    """Take a place of each kind in the time of a statement, all or none; false where they are not free in time."""
    taken: list[anyio.Semaphore] = []
    try:
        for place in places:
            place.acquire_nowait()
            taken.append(place)
    except anyio.WouldBlock:
        return await _wait_for(bounds, places, taken)
    return True


async def _wait_for(bounds: Bounds, places: tuple[anyio.Semaphore, ...], taken: list[anyio.Semaphore]) -> bool:
    try:
        with anyio.move_on_after(bounds.statement):
            for place in places[len(taken) :]:
                await place.acquire()
                taken.append(place)
    finally:
        if len(taken) < len(places):
            for place in taken:
                place.release()
    return len(taken) == len(places)
