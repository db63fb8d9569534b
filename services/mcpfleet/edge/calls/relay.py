"""One request that a worker answers, from its order to the last byte: JSON, or a stream from the first notice on."""

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
from mcpfleet.edge.calls.end import Ends, Told, Use
from mcpfleet.edge.calls.in_flight import Call, Calls, End, Remote
from mcpfleet.edge.calls.large_results import Bodies, ResultLost
from mcpfleet.edge.calls.queue import Dispatch, MakeOrder
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.client import Client, ClientGone, ClientStalled, while_there
from mcpfleet.wire import reply
from mcpfleet.wire.envelope import RequestId

_UNWATCHED: Final = 0.1
"""Seconds in which a call may end before anybody watches for its client's leaving: most do, and need no watcher."""
CLIENT_GONE: Final = "client_gone"


class Listening(NamedTuple):
    """What of a call the client hears before its end."""

    token: RequestId | None = None
    """The client's progress token; None where nobody listens to progress."""
    logs: bool = False
    may_stream: bool = True
    """The answer may become a stream; not while a capability that the handler may need is missing (D16, P4)."""


class Answering:
    """Answers requests by calls on the bus."""

    def __init__(
        self,
        calls: Calls,
        dispatch: Dispatch,
        bodies: Bodies,
        ends: Ends,
        *,
        settings: EdgeSettings,
        log: FilteringBoundLogger,
    ) -> None:
        self.calls = calls
        self.dispatch = dispatch
        self.bodies = bodies
        self.ends = ends
        self.settings = settings
        self.log = log

    async def answer(
        self, use: Use, listening: Listening, make_order: MakeOrder, asked: Asked | None = None
    ) -> str | None:
        """Place the order and answer the client; returns the error's type, or None for a result.

        A client that leaves cancels the call (D12), and nothing more is written for it (M15). In a session of 2025 the
        call goes on, and so does this until its end: the client may take it back by its id (P9, L19).

        Args:
            use: the request, and how its end is told.
            listening: what the client hears before that.
            make_order: makes the order from what the caller may call now; asked again before each further try.
            asked: takes what the handler asks, and nothing is answered then; without it, a question is the answer.

        Raises:
            Rejection: 503 where no worker had room; nothing was sent to the client.
        """
        one = _One(self, use.inquiry.request.client, listening, use, asked)
        try:
            return await one.run(make_order, one.finish if asked is None else one.finish_or_ask)
        except ClientGone:
            return CLIENT_GONE

    async def refuse(self, use: Use, error: Exception) -> str | None:
        """Answer a call that cannot go on after its handler's question, or was not begun; returns the error's type."""
        return await _One(self, use.inquiry.request.client, Listening(), use).send_end(self.ends.unanswered(use, error))

    async def fetch(self, use: Use, make_order: MakeOrder) -> bytes:
        """Place the order, and hand its result over instead of sending it.

        Raises:
            Rejection: 503 where no worker had room, and whatever else did not end in a result.
            ClientGone: nobody waits for it any more.
        """
        client = use.inquiry.request.client
        one = _One(self, client, Listening(may_stream=False), use)
        await one.run(make_order, one.keep)
        if client.is_gone:
            raise ClientGone
        return one.kept


@dataclass(slots=True, eq=False)
class Asked:
    """What a handler asks a client that can be asked within its request, over all the rounds of that."""

    body: bytes | None = None
    """The worker's `ask` frame; None where the call has ended otherwise."""
    reached: float = -math.inf
    """The greatest progress that was told: a handler that runs again begins anew, and its client hears no less."""


OnEnd = Callable[[Call], Awaitable[str | None]]
"""Does with an ended call what it was placed for; returns the error's type."""


class _One:
    """The answering of one request."""

    def __init__(
        self, answering: Answering, client: Client, listening: Listening, use: Use, asked: Asked | None = None
    ) -> None:
        self._with = answering
        self._log = answering.log
        self._client = client
        self._listening = listening
        self._use = use
        self._silent_since = time.monotonic()
        self.kept = b""
        self._asked = asked
        self._stalled: ClientStalled | None = None
        """Why the client was given up, where the call goes on."""

    async def run(self, make_order: MakeOrder, end: OnEnd) -> str | None:
        call = self._with.dispatch.place(make_order())
        try:
            if call is not None:
                await call.wait(_UNWATCHED)
                if call.end is not None and call.remote is None and not call.notices:
                    return await end(call)
        except BaseException:
            self._release(call)
            raise
        goes_on = self._use.inquiry.session is not None
        return await while_there(self._client, partial(self._follow, call, make_order, end), goes_on=goes_on)

    async def _follow(self, call: Call | None, make_order: MakeOrder, end: OnEnd) -> str | None:
        """Pass on what the call says until its end; wait for room first where it was refused."""
        try:
            while True:
                if call is None or call.refusal is not None:
                    self._release(call)
                    call = None
                    call = await self._with.dispatch.wait_for_room(make_order)
                if self._client.is_gone and call.end is not None:
                    return self._end_unheard(call)
                await self._send_notices(call)
                if call.remote is not None:
                    return await self._end_remote(call, call.remote, end)
                if call.end is not None:
                    return await end(call)
                if not await call.wait(self._patience()) and self._listening.may_stream:
                    await self._send(reply.KEEPALIVE)  # D17: proxies cut quiet connections, and that is a cancellation
        finally:
            self._release(call)

    def _release(self, call: Call | None) -> None:
        if call is not None:
            self._with.calls.release(call, taken_back=self._client.is_unwanted)

    def _end_unheard(self, call: Call) -> str:
        """End a call whose client has left.

        Raises:
            ClientStalled: the client was given up.
        """
        self._release(call)
        if self._stalled is not None:
            raise self._stalled
        return CLIENT_GONE

    def _patience(self) -> float:
        """Seconds until a silent connection must show that it lives."""
        settings = self._with.settings
        limit = settings.keepalive if self._client.is_streaming else settings.silent_after
        left = self._silent_since + limit - time.monotonic()
        return max(0.0, left) if self._listening.may_stream else limit

    async def _send_notices(self, call: Call) -> None:
        """Pass reports and log messages on; the first makes the answer a stream (P5)."""
        while call.notices:
            kind, body = call.notices.popleft()
            try:
                notice = self._notice(kind, body)
            except reply.NotSpliceable as error:
                self._log.error("a worker sent a malformed notice", pool=call.order.pool, error=str(error))
                continue
            if notice is not None:
                await self._send(reply.event(notice))

    def _notice(self, kind: FrameKind, body: bytes) -> bytes | None:
        if not self._listening.may_stream:
            return None
        if kind is FrameKind.LOG:
            return reply.log_message(body) if self._listening.logs else None
        if self._listening.token is None or (self._asked is not None and not _goes_forward(self._asked, body)):
            return None
        return reply.progress(self._listening.token, body)

    async def _send(self, data: bytes) -> None:
        """Send events; a call of a session goes on where its client does not read them, as where it leaves."""
        try:
            if not self._client.is_streaming:
                await self._client.open_stream()
            await self._client.send_part(data)
        except ClientStalled as stalled:
            if self._use.inquiry.session is None:
                raise
            self._stalled = stalled
            self._client.leave()
        self._silent_since = time.monotonic()

    async def _end_remote(self, call: Call, remote: Remote, end: OnEnd) -> str | None:
        """Fetch the result first, in room that is held until the client has it."""
        try:
            async with self._with.bodies.fetched(remote) as call.body:
                return await end(call)
        except ResultLost as error:
            self._log.warning("result lost", pool=call.order.pool, worker=remote.worker, error=str(error))
            call.end = End.RESULT_LOST
            return await end(call)

    async def finish(self, call: Call) -> str | None:
        """Send the one end of the call, as an event where the answer is a stream already."""
        self._release(call)
        if self._client.is_unwanted:  # it was said first, and is on its way here
            await anyio.lowlevel.checkpoint()
        self._client.is_ending = True
        if call.end is End.TASK:
            told = await self._with.ends.tell_task(call, self._use)
        else:
            told = self._with.ends.tell(call, self._use)
        call.body = b""  # it is part of what is sent; a client that reads slowly need not hold both
        return await self.send_end(told)

    async def finish_or_ask(self, call: Call) -> str | None:
        """Do as `finish`, or keep what the handler asks."""
        assert self._asked is not None
        if call.end is not End.ASK:
            return await self.finish(call)
        self._release(call)
        self._asked.body = call.body
        return None

    async def send_end(self, told: Told) -> str | None:
        """Send the one end; returns the error's type."""
        await self._client.end(told.status, told.body)
        return told.error_type

    async def keep(self, call: Call) -> str | None:
        """Keep the result for who asked for it.

        Raises:
            Rejection: it is no result.
        """
        self._release(call)
        if call.end is not End.RESULT:
            raise self._with.ends.rejection(call, self._use)
        self.kept = call.body
        return None


def _goes_forward(asked: Asked, body: bytes) -> bool:
    """Whether a report is of more than those of all rounds before it (P2)."""
    try:
        reached = from_json(body)["progress"]
    except (ValueError, LookupError, TypeError):
        raise reply.NotSpliceable("a report must have its progress") from None
    if not isinstance(reached, int | float) or reached <= asked.reached:
        return False
    asked.reached = reached
    return True
