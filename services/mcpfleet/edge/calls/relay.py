"""Passes one call between its worker and its client: JSON, or a stream from the first notice on."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import anyio.lowlevel
from pydantic_core import from_json
from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.call import FrameKind
from mcpfleet.edge.calls.call_request import CallRequest
from mcpfleet.edge.calls.end import CallEnd, CallEnds
from mcpfleet.edge.calls.in_flight import Call, End, InFlightCalls, Remote
from mcpfleet.edge.calls.large_results import LargeResults, ResultLost
from mcpfleet.edge.calls.queue import CallQueue, CallWatch, MakeOrder, PlacedOrder
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.http_exchange import ClientGone, ClientStalled, while_there
from mcpfleet.wire import reply

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


@dataclass(slots=True, eq=False)
class Elicited:
    """The questions of a handler within one request of a session's client, over all rounds of that request."""

    body: bytes | None = None
    """The worker's `ask` frame; None where the call has ended otherwise."""
    reached: float = -math.inf
    """The greatest progress that was told. A handler that runs again begins anew, and its client hears no less."""


OnEnd = Callable[[Call], Awaitable[str | None]]
"""Uses an ended call; returns the error's type."""


async def answer(
    parts: CallParts, request: CallRequest, make_order: MakeOrder, elicited: Elicited | None = None
) -> str | None:
    """Place a request's order and answer its client; return the error's type, or None for a result.

    A client that leaves cancels the call (D12), and nothing more is written for it (M15). In a session of 2025 the call
    goes on, and so does this until its end: the client may take it back by its id (P9, L19).

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


class CallRelay(CallWatch):
    """The relay of one call."""

    def __init__(self, parts: CallParts, request: CallRequest, elicited: Elicited | None = None) -> None:
        super().__init__(parts.settings)
        self._parts = parts
        self._log = parts.log
        self._exchange = request.exchange
        self._request = request
        self._silent_since = time.monotonic()
        self.kept = b""
        self._elicited = elicited
        self._stalled: ClientStalled | None = None
        """Why the client was given up, where the call goes on."""

    async def run(self, make_order: MakeOrder, end: OnEnd) -> str | None:
        """Place the order, pass on what the call says, and use its end."""
        with self._parts.queue.placement(make_order, self) as placement:
            call = placement.call
            if call is not None:
                await call.wait(_UNWATCHED)
                if call.end is not None and call.remote is None and not call.notices:
                    placement.release()
                    return await end(call)
            goes_on = not self._request.ends_with_connection
            return await while_there(self._exchange, partial(self._follow, placement, end), goes_on=goes_on)

    async def _follow(self, placement: PlacedOrder, end: OnEnd) -> str | None:
        call = await placement.ended()
        if self._exchange.is_gone:
            if self._stalled is not None:
                raise self._stalled
            return CLIENT_GONE
        if call.remote is not None:
            return await self._end_remote(placement, call, call.remote, end)
        placement.release()
        return await end(call)

    # -- what the queue tells of the call -----------------------------------------------------------------------------

    @property
    def is_taken_back(self) -> bool:
        """True where the client asked for the cancellation."""
        return self._exchange.is_unwanted

    async def heard(self, call: Call) -> None:
        """Pass reports and log messages on; the first makes the answer a stream (P5)."""
        while call.notices and not self._exchange.is_gone:
            kind, body = call.notices.popleft()
            try:
                notice = self._notice(kind, body)
            except reply.NotSpliceable as error:
                self._log.error("a worker sent a malformed notice", pool=call.order.pool, error=str(error))
                continue
            if notice is not None:
                await self._send(reply.event(notice))

    def patience(self, call: Call) -> float:
        """Return the seconds until a silent connection must show that it lives."""
        del call
        settings = self._settings
        limit = settings.keepalive if self._exchange.is_streaming else settings.silent_after
        left = self._silent_since + limit - time.monotonic()
        return max(0.0, left) if self._request.may_stream else limit

    async def silent(self) -> None:
        """Send a comment: proxies cut quiet connections, and that is a cancellation (D17)."""
        if self._request.may_stream:
            await self._send(reply.KEEPALIVE)

    def _notice(self, kind: FrameKind, body: bytes) -> bytes | None:
        if kind is FrameKind.LOG:
            return reply.log_message(body) if self._request.hears_logs else None
        token = self._exchange.progress_token
        if token is None or not self._request.may_stream:
            return None
        if self._elicited is not None and not _goes_forward(self._elicited, body):
            return None
        return reply.progress(token, body)

    async def _send(self, data: bytes) -> None:
        """Send events; a call of a session goes on where its client does not read them, as where it leaves."""
        try:
            await self._exchange.send_events(data)
        except ClientStalled as stalled:
            if self._request.ends_with_connection:
                raise
            self._stalled = stalled
            self._exchange.leave()
        self._silent_since = time.monotonic()

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _end_remote(self, placement: PlacedOrder, call: Call, remote: Remote, end: OnEnd) -> str | None:
        """Fetch the result first, in memory that is held until the client has it."""
        try:
            async with self._parts.large_results.fetched(remote) as call.body:
                placement.release()
                return await end(call)
        except ResultLost as error:
            self._log.warning("result lost", pool=call.order.pool, worker=remote.worker, error=str(error))
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
            end = self._parts.ends.of_call(call, self._request)
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
    await request.exchange.end(end.status, end.body)
    return end.error_type


def _goes_forward(elicited: Elicited, body: bytes) -> bool:
    """Return whether a report is of more than those of all rounds before it (P2)."""
    try:
        reached = from_json(body)["progress"]
    except (ValueError, LookupError, TypeError):
        raise reply.NotSpliceable("a report must have its progress") from None
    if not isinstance(reached, int | float) or reached <= elicited.reached:
        return False
    elicited.reached = reached
    return True
