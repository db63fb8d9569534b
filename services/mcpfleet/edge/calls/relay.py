"""Relays one call: places it, follows it, and sends its one end to the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

import anyio.lowlevel
from structlog.typing import FilteringBoundLogger

from mcpfleet.edge.calls.call_request import CallRequest
from mcpfleet.edge.calls.end import CallEnd, CallEnds
from mcpfleet.edge.calls.in_flight import Call, End, InFlightCalls, Remote
from mcpfleet.edge.calls.large_results import LargeResults, ResultLost
from mcpfleet.edge.calls.queue import CallQueue, MakeOrder, PlacedOrder
from mcpfleet.edge.calls.updates import ClientUpdates, Elicited
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.http_exchange import ClientGone, while_there

_UNWATCHED: Final = 0.1
"""Seconds in which nobody watches whether the client leaves: most calls end within, and need no watcher."""
CLIENT_GONE: Final = "client_gone"


class CallParts(NamedTuple):
    """The parts of an edge that each relay works with."""

    calls: InFlightCalls
    queue: CallQueue
    large_results: LargeResults
    ends: CallEnds
    settings: EdgeSettings
    log: FilteringBoundLogger


OnEnd = Callable[[Call], Awaitable[str | None]]
"""Uses an ended call; returns the error's type."""


async def answer(
    parts: CallParts, request: CallRequest, make_order: MakeOrder, elicited: Elicited | None = None
) -> str | None:
    """Place a request's order and answer its client; return the error's type, or None for a result.

    A client that leaves cancels the call (D12), and nothing more is written for it (M15). In a session of 2025 the call
    goes on, and is followed to its end. Its client may take it back by its id (P9, L19).

    Args:
        parts: the edge's.
        request: what is asked of whom.
        make_order: makes the order from what the caller may call now; asked again before each further try.
        elicited: takes what the handler asks, and nothing is answered then; without it, a question is the answer.

    Raises:
        Rejection: 503 where no worker had room; nothing was sent to the client.
    """
    relay = CallRelay(parts, request, elicited)
    try:
        return await relay.run(make_order, relay.finish if elicited is None else relay.finish_or_ask)
    except ClientGone:
        return CLIENT_GONE


async def fetch(parts: CallParts, request: CallRequest, make_order: MakeOrder) -> bytes:
    """Place a request's order, and return its result instead of sending it.

    Raises:
        Rejection: 503 where no worker had room, and whatever else did not end in a result.
        ClientGone: nobody waits for it any more.
    """
    relay = CallRelay(parts, request)
    await relay.run(make_order, relay.keep)
    if request.exchange.is_gone:
        raise ClientGone
    return relay.kept


class CallRelay:
    """The relay of one call."""

    def __init__(self, parts: CallParts, request: CallRequest, elicited: Elicited | None = None) -> None:
        self._parts = parts
        self._exchange = request.exchange
        self._request = request
        self._elicited = elicited
        self._updates = ClientUpdates(request, parts.settings, parts.log, elicited)
        self.kept = b""

    async def run(self, make_order: MakeOrder, end: OnEnd) -> str | None:
        """Place the order, pass on what the call says, and use its end."""
        with self._parts.queue.placement(make_order, self._updates) as placement:
            call = placement.call
            if call is not None:
                await call.wait(_UNWATCHED)
                if call.end is not None and call.remote is None and not call.notices:
                    placement.release()
                    return await end(call)
            outlives = not self._exchange.revision.ends_with_connection
            return await while_there(self._exchange, partial(self._follow, placement, end), goes_on=outlives)

    async def _follow(self, placement: PlacedOrder, end: OnEnd) -> str | None:
        call = await placement.ended()
        if self._exchange.is_gone:
            if self._updates.stalled is not None:
                raise self._updates.stalled
            return CLIENT_GONE
        if call.remote is not None:
            return await self._end_remote(placement, call, call.remote, end)
        placement.release()
        return await end(call)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _end_remote(self, placement: PlacedOrder, call: Call, remote: Remote, end: OnEnd) -> str | None:
        """Fetch the result first, in memory that is held until the client has it."""
        try:
            async with self._parts.large_results.fetched(remote) as call.body:
                placement.release()
                return await end(call)
        except ResultLost as error:
            self._parts.log.warning("result lost", pool=call.order.pool, worker=remote.worker, error=str(error))
            call.end = End.RESULT_LOST
            return await end(call)

    async def finish(self, call: Call) -> str | None:
        """Send the one end of the call, as an event where the answer is a stream already."""
        if self._exchange.is_unwanted:  # it was said first, and is on its way here
            await anyio.lowlevel.checkpoint()
        self._exchange.is_ending = True
        if call.end is End.TASK:
            end = await self._parts.ends.of_task(call, self._request)
        else:
            end = await self._parts.ends.of_call(call, self._request)
        call.body = b""  # it is part of what is sent; a client that reads slowly need not hold both
        return await send_end(self._request, end)

    async def finish_or_ask(self, call: Call) -> str | None:
        """Do as `finish`, or keep what the handler asks."""
        assert self._elicited is not None
        if call.end is not End.ASK:
            return await self.finish(call)
        self._elicited.body = call.body
        return None

    async def keep(self, call: Call) -> str | None:
        """Keep the result for who asked for it.

        Raises:
            Rejection: it is no result.
        """
        if call.end is not End.RESULT:
            raise self._parts.ends.rejection(call, self._request)
        self.kept = call.body
        return None


async def send_end(request: CallRequest, end: CallEnd) -> str | None:
    """Send the one end; return the error's type."""
    await request.exchange.end(end.status, end.body, end.headers)
    return end.error_type
