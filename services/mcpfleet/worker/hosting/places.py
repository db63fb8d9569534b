"""The places that this worker has: each lets it, alone in the fleet, have the connection of a key (B16).

A place counts only while this worker's lease is sure by its own clock: it ends its connections before another worker
may take their places.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import Final

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.rpc import ask
from mcpfleet.contracts.places import LEASE, MOST_FREED, PLACE, HeldPlace, HoldPlaces, PlacesHeld
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.worker.upstream import HeldElsewhere, NotSent

AskPlaces = Callable[[HoldPlaces], Awaitable[PlacesHeld]]
"""Asks subscriptions, and raises `BusError`."""

RENEWS_EVERY: Final = 3.0
"""Seconds between two renewals of the lease."""
_MARGIN: Final = 2.0
"""Seconds of the lease that must be left for a write."""
_ANSWERED_WITHIN: Final = 3.0
_TRIES_AGAIN: Final = 0.5
_FREES_WITHIN: Final = 1.0
"""Seconds for which a worker that leaves tries to free its places; they end with its lease in any case."""


def places_of(bus: Bus, pool: str, log: FilteringBoundLogger) -> Places:
    """Return the places of a worker; made on the bus's loop, and used on the handlers'."""
    loop = asyncio.get_running_loop()

    async def tell(wanted: HoldPlaces) -> PlacesHeld:
        asking = ask(bus, PLACE, wanted, timeout=_ANSWERED_WITHIN, pool=pool)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, loop))

    return Places(bus.process, tell, log=log)


class Places:
    """Takes, keeps and frees places. All of it is for the handlers' loop."""

    def __init__(self, worker: str, ask: AskPlaces, *, log: FilteringBoundLogger) -> None:
        """Have no place yet.

        Args:
            worker: the id of this process.
            ask: asks subscriptions.
            log: gets why places were lost.
        """
        self._worker = worker
        self._ask = ask
        self._log = log
        self._held: dict[str, str] = {}
        """The claim of each place."""
        self._freed: list[HeldPlace] = []
        self._sure_until = 0.0
        self._turn = anyio.Lock()
        self._renewed = 0.0
        """When the newest message that was answered was sent."""
        self._wakes = AutoResetEvent()
        self._taken = AutoResetEvent()
        self.on_lost: list[Callable[[], None]] = []
        """Called when no place is this worker's any more: connections end, since another worker may have theirs."""

    async def hold(self, key: str) -> None:
        """Have the place of a key.

        Raises:
            HeldElsewhere: another worker has it, and so the key's connection.
            NotSent: subscriptions does not answer, or the pool has as many places as may be.
        """
        if self._has(key):
            return
        async with self._turn:  # or two takings would not know whose claim is the newer
            if self._has(key):
                return
            claim = token_hex(16)
            holder = await self._tell(HeldPlace(key=key, claim=claim))
            if holder is None:
                raise NotSent
            if holder != self._worker:
                raise HeldElsewhere(holder)
            self._held[key] = claim
            self._taken.set()
            self._wakes.set()

    def free(self, key: str) -> None:
        """Let others have the place of a key, whose connection is over."""
        claim = self._held.pop(key, None)
        if claim is not None:
            self._freed.append(HeldPlace(key=key, claim=claim))
            self._wakes.set()

    async def run(self) -> None:
        """Renew the lease until cancelled, and free all places then."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_lease)
                while True:
                    await self._wakes.wait(self._renewed + RENEWS_EVERY - time.monotonic() if self._held else None)
                    if self._freed or (self._held and time.monotonic() >= self._renewed + RENEWS_EVERY):
                        async with self._turn:
                            await self._renew()
        finally:
            with anyio.move_on_after(_FREES_WITHIN, shield=True):
                for key in list(self._held):
                    self.free(key)
                while self._freed:
                    await self._renew()

    async def _watch_lease(self) -> None:
        """Give all places up in time, whatever subscriptions does."""
        while True:
            if not self._held:
                await self._taken.wait()
            await anyio.sleep(max(0.0, self._sure_until - _MARGIN - time.monotonic()))
            self._look()

    async def _renew(self) -> None:
        try:
            await self._tell(None)
        except NotSent:
            await anyio.sleep(_TRIES_AGAIN)

    def _has(self, key: str) -> bool:
        self._look()
        return key in self._held

    def _look(self) -> None:
        """Give all places up while nobody else can have them: the lease is nearly over."""
        if self._held and time.monotonic() >= self._sure_until - _MARGIN:
            self._lose("the lease was not renewed in time")

    def _lose(self, why: str) -> None:
        self._log.warning("places lost", places=len(self._held), why=why)
        self._held.clear()
        for tell in self.on_lost:
            tell()

    async def _tell(self, take: HeldPlace | None) -> str | None:
        """Send what is wanted and what is freed; returns the holder of the wanted place."""
        asked, freed = time.monotonic(), tuple(self._freed[:MOST_FREED])
        try:
            told = await self._ask(HoldPlaces(worker=self._worker, take=take, free=freed))
        except BusError as error:
            self._log.info("places not answered", error=str(error))
            raise NotSent from error
        self._freed = [each for each in self._freed if each not in freed]
        if not told.is_known and self._held:
            self._lose("subscriptions does not know of them")
        self._renewed, self._sure_until = asked, asked + LEASE
        return told.holder
