"""Calls that wait for room in a pool: bounded, first come first served, one at a time asking."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import anyio

from mcpfleet.bus.errors import NotRun
from mcpfleet.contracts.call import WANTS_ACCEPTED
from mcpfleet.edge.calls import Call, Calls, Order
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.wire.errors import no_capacity


@dataclass(slots=True, eq=False)
class _Line:
    """Who waits for one pool; the lock is fair, and its holder is the one who asks."""

    waiting: int = 0
    turn: anyio.Lock = field(default_factory=anyio.Lock)


class Dispatch:
    """Places orders: at once where nobody waits for the pool, else behind those who do."""

    def __init__(self, calls: Calls, settings: EdgeSettings) -> None:
        self._calls = calls
        self._settings = settings
        self._lines: dict[str, _Line] = {}

    @property
    def waiting(self) -> int:
        """How many calls wait, over all pools."""
        return sum(line.waiting for line in self._lines.values())

    def place(self, order: Order) -> Call | None:
        """Send an order at once; None where others wait for the pool already, or nothing can be sent."""
        if order.pool in self._lines:
            return None
        try:
            return self._calls.place(order)
        except NotRun:
            return None

    async def wait_for_room(self, order: Order) -> Call:
        """Wait until a worker of the pool accepts the order.

        Raises:
            Rejection: 503, after a bounded wait or where too many wait; the order has not run and never will.
        """
        line = self._lines.setdefault(order.pool, _Line())
        if line.waiting >= self._settings.queue_size:
            raise no_capacity(self._retry_after())
        line.waiting += 1
        try:
            return await self._in_line(line, order, time.monotonic() + self._settings.queue_wait)
        finally:
            line.waiting -= 1
            if line.waiting == 0:
                self._lines.pop(order.pool, None)

    async def _in_line(self, line: _Line, order: Order, until: float) -> Call:
        with anyio.move_on_after(until - time.monotonic()) as patience:
            await line.turn.acquire()
        if patience.cancelled_caught:
            raise no_capacity(self._retry_after())
        try:
            while (left := until - time.monotonic()) > 0:
                call = await self._try(order)
                if call is not None:
                    return call
                pause = random.uniform(self._settings.probe_min, self._settings.probe_max)  # noqa: S311
                await anyio.sleep(min(pause, left))
        finally:
            line.turn.release()
        raise no_capacity(self._retry_after())

    async def _try(self, order: Order) -> Call | None:
        """Place the order once; None where it was refused.

        Once sent it is waited for past the line's own patience: a call that may have been taken is never told that it
        did not run. A worker says `accepted` at once, and the table ends what nobody accepts.
        """
        try:
            call = self._calls.place(order, WANTS_ACCEPTED)
        except NotRun:
            return None
        try:
            while call.heard is None and not call.is_settled:
                await call.wait(self._settings.unaccepted_after)
        except BaseException:
            self._calls.release(call)
            raise
        if call.refusal is None:
            call.notify()  # what came with the acceptance is still news for whoever reads the call
            return call
        self._calls.release(call)
        return None

    def _retry_after(self) -> int:
        """Seconds after which trying again makes sense: spread, so that those refused together do not return so."""
        return random.randint(1, 3)  # noqa: S311
