"""Calls that wait for room in a pool: bounded, first come first served, woken by calls that end."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from mcpfleet.bus.errors import NotRun, TooLarge
from mcpfleet.contracts.call import WANTS_ACCEPTED
from mcpfleet.edge.calls.in_flight import Call, InFlightCalls, Order
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.telemetry.instruments import EdgeInstruments
from mcpfleet.wire.errors import Rejection, bad_params, no_capacity

MakeOrder = Callable[[], Order]
"""Makes the order from what exists now: while a call waits, a rollout may replace the definition that it is for.

Raises `Rejection` where the caller may not call it any more.
"""


@dataclass(slots=True, eq=False)
class _Ticket:
    """One call's place in a line."""

    news: anyio.Event = field(default_factory=anyio.Event)
    may_try: bool = False
    probes: bool = False
    """Its turn came without an end that freed a slot. Where a worker takes it, there may be room for more."""


class _Line:
    """The line of calls that wait for one pool, first come first served.

    A ticket may try when a call of the pool ends at this edge, which frees a slot. Besides, the first in line probes
    from time to time, since calls of other edges end unseen, and workers come. One probes at a time, so that not all
    ask a full pool. Where a worker takes a probe, the next ticket probes at once, so that a pool that came back is
    soon used whole. A probe without an answer may have gone to a dead worker, and holds up the line for one pause.
    """

    def __init__(self, settings: EdgeSettings) -> None:
        self._settings = settings
        self._tickets: deque[_Ticket] = deque()
        self._probing: _Ticket | None = None
        self.size = 0
        """Calls in line, including those that are trying."""

    def release(self, *, probes: bool = False) -> None:
        """Let the first try: there is room, or there may be."""
        if self._tickets:
            ticket = self._tickets.popleft()
            ticket.may_try, ticket.probes = True, probes
            ticket.news.set()
            self._tell_first()

    async def wait(self, ticket: _Ticket, until: float, *, returns: bool) -> bool:
        """Wait for the ticket's turn; False where `until` (monotonic) comes first.

        Args:
            ticket: new in line, or back from a try.
            until: when its patience ends.
            returns: it tried and was refused, so it stands before those who have not.
        """
        ticket.may_try = False
        (self._tickets.appendleft if returns else self._tickets.append)(ticket)
        self.leave(ticket)
        try:
            while not ticket.may_try and (left := until - time.monotonic()) > 0:
                ticket.news = anyio.Event()
                with anyio.move_on_after(min(self._pause(), left) if self._may_probe(ticket) else left):
                    await ticket.news.wait()
                    continue
                # It may have lost its place meanwhile to one who came back from a try, or have been let go already.
                if self._may_probe(ticket) and time.monotonic() < until:
                    self._probing = ticket
                    ticket.may_try = ticket.probes = True
        finally:
            if ticket in self._tickets:
                self._tickets.remove(ticket)
                self._tell_first()
        return ticket.may_try

    def leave(self, ticket: _Ticket) -> None:
        """End a ticket's try: the next may probe."""
        if self._probing is ticket:
            self._probing = None
            self._tell_first()

    def _may_probe(self, ticket: _Ticket) -> bool:
        return self._probing is None and bool(self._tickets) and self._tickets[0] is ticket

    def _pause(self) -> float:
        return random.uniform(self._settings.probe_min, self._settings.probe_max)  # noqa: S311

    def _tell_first(self) -> None:
        """Wake the first: from now on it probes by itself."""
        if self._tickets:
            self._tickets[0].news.set()


class CallWatch:
    """Hears a call before its end. This one passes nothing on, for those who wait for the end alone."""

    def __init__(self, settings: EdgeSettings) -> None:
        self._settings = settings

    @property
    def tool(self) -> str:
        """The tool that is called; empty for what is no call of a tool."""
        return ""

    @property
    def is_taken_back(self) -> bool:
        """True where the client asked for the cancellation."""
        return False

    async def heard(self, call: Call) -> None:
        """Take the news of a call."""

    def patience(self, call: Call) -> float:
        """Return the seconds after which silence is worth an action."""
        return max(0.0, call.order.deadline - time.monotonic()) + self._settings.probe_max

    async def silent(self) -> None:
        """Act on silence."""


class PlacedOrder:
    """One order on its way to a worker. Its block releases the call, which cancels one that has not ended."""

    __slots__ = ("_make_order", "_queue", "_watch", "call")

    def __init__(self, queue: CallQueue, make_order: MakeOrder, watch: CallWatch) -> None:
        self._queue = queue
        self._make_order = make_order
        self._watch = watch
        self.call: Call | None = None
        """The newest call that was placed for the order; None where there was no room, or it was released."""

    def __enter__(self) -> PlacedOrder:
        self.call = self._queue.place(self._make_order())
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Stop waiting for the call; one that has ended frees its memory here."""
        call, self.call = self.call, None
        if call is not None:
            self._queue.release(call, taken_back=self._watch.is_taken_back)

    async def ended(self) -> Call:
        """Wait for room where the order was refused, and return its call once that has ended.

        The caller bounds this wait by cancelling it, which cancels the call.

        Raises:
            Rejection: as `CallQueue.wait_for_room`, and as the order's making.
        """
        while True:
            if self.call is None or self.call.refusal is not None:
                self.release()
                self.call = await self._queue.wait_for_room(self._make_order, self._watch.tool)
            call = self.call
            await self._watch.heard(call)
            if call.end is not None:
                return call
            if not await call.wait(self._watch.patience(call)):
                await self._watch.silent()


class CallQueue:
    """Places orders: at once where no call waits for the pool, else at the end of its line."""

    def __init__(self, calls: InFlightCalls, settings: EdgeSettings, instruments: EdgeInstruments) -> None:
        self._calls = calls
        self._settings = settings
        self._instruments = instruments
        self._lines: dict[str, _Line] = {}
        calls.on_end(self._on_end)
        instruments.queued.observe(lambda: sum(line.size for line in self._lines.values()))

    def place(self, order: Order) -> Call | None:
        """Send an order at once; None where calls wait for the pool already, or nothing can be sent.

        Raises:
            Rejection: -32602 where the arguments are too large for any worker.
        """
        if order.pool in self._lines:
            return None
        try:
            return self._place(order)
        except NotRun:
            return None

    def placement(self, make_order: MakeOrder, watch: CallWatch | None = None) -> PlacedOrder:
        """Return an order's way through the queue, to be used as a context.

        Args:
            make_order: makes the order from what exists now.
            watch: hears the call before its end.
        """
        return PlacedOrder(self, make_order, CallWatch(self._settings) if watch is None else watch)

    def release(self, call: Call, *, taken_back: bool) -> None:
        """Stop waiting for a call; see `InFlightCalls.release`."""
        self._calls.release(call, taken_back=taken_back)

    def drop_result(self, call: Call) -> None:
        """Have the worker of a call that has ended drop the result that it keeps there."""
        self._calls.drop_result(call)

    def _place(self, order: Order, flags: str = "") -> Call:
        """Place an order; one that is too large for any worker is refused at once, and never tried again."""
        try:
            return self._calls.place(order, flags)
        except TooLarge as error:
            raise bad_params("the arguments are too large") from error

    async def wait_for_room(self, make_order: MakeOrder, tool: str = "") -> Call:
        """Wait until a worker of the pool accepts the order, which is made anew for each try.

        Args:
            make_order: makes the order from what exists now.
            tool: the tool that is called, for the metrics; empty for what is no call of a tool.

        Raises:
            Rejection: 503, after a bounded wait or where too many wait; the order has not run and never will.
        """
        pool = make_order().pool
        line = self._lines.setdefault(pool, _Line(self._settings))
        if line.size >= self._settings.queue_size:
            raise _refused()
        line.size += 1
        self._instruments.queue_tools.add(1, tool)
        entered = time.monotonic()
        try:
            return await self._try_in_line(line, make_order, entered + self._settings.queue_wait)
        finally:
            self._instruments.queue_wait.record(time.monotonic() - entered, pool)
            self._instruments.queue_tools.add(-1, tool)
            line.size -= 1
            if line.size == 0:
                self._lines.pop(pool, None)

    async def _try_in_line(self, line: _Line, make_order: MakeOrder, until: float) -> Call:
        ticket = _Ticket()
        returns = False
        try:
            while await line.wait(ticket, until, returns=returns):
                call = await self._try(make_order(), lambda: line.leave(ticket))
                if call is not None:
                    if ticket.probes:
                        line.release(probes=True)
                    return call
                returns = True
        finally:
            line.leave(ticket)
        raise _refused()

    async def _try(self, order: Order, let_others_probe: Callable[[], None]) -> Call | None:
        """Place the order once; None where it was refused.

        A sent order is awaited even after `queue_wait`: a call that a worker may have taken is never told as not run. A
        worker says `accepted` at once, and the table ends a call that nobody accepts.
        """
        try:
            call = self._place(order, WANTS_ACCEPTED)
        except NotRun:
            return None
        try:
            if not await call.wait(self._settings.probe_max):
                let_others_probe()
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

    def _on_end(self, pool: str) -> None:
        line = self._lines.get(pool)
        if line is not None:
            line.release()


def _refused() -> Rejection:
    """Say to come back after a spread number of seconds, so that those refused together do not return so."""
    return no_capacity(random.randint(1, 3))  # noqa: S311
