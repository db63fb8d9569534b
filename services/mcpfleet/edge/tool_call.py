"""One `tools/call`, from its order to the last byte of its answer: JSON, or a stream from the first report on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.edge.bodies import Bodies, ResultLost
from mcpfleet.edge.calls import Call, Calls, End, Remote
from mcpfleet.edge.client import Client, ClientStalled
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.waiting import Dispatch, MakeOrder
from mcpfleet.wire import reply
from mcpfleet.wire.envelope import RequestId
from mcpfleet.wire.errors import Rejection, internal

_UNWATCHED: Final = 0.1
"""Seconds in which a call may end before anybody watches for its client's leaving: most do, and need no watcher."""

_UNCERTAIN: Final = {
    End.UNACCEPTED: "No worker confirmed that it received this call, and one may still have run it.",
    End.LOST: "The worker that ran this call is no longer heard from.",
    End.RESULT_LOST: "This call has ended, and its result was lost on the way.",
    End.GIVEN_UP: "The server that waited for this call had to stop.",
    End.OVERDUE: "This call was not finished in time. It was told to stop.",
}


@dataclass(frozen=True, slots=True)
class Target:
    """What a call answers to, beside its order."""

    id: RequestId
    server: bytes
    """The server's name, spliced into the result."""
    token: RequestId | None
    """The client's progress token; None where nobody listens to progress."""
    reference: str
    """Ties what the client reads to the logs and the trace."""


class ToolCall:
    """The answering of one call."""

    def __init__(
        self,
        client: Client,
        target: Target,
        *,
        calls: Calls,
        dispatch: Dispatch,
        bodies: Bodies,
        settings: EdgeSettings,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client
        self._target = target
        self._calls = calls
        self._dispatch = dispatch
        self._bodies = bodies
        self._settings = settings
        self._log = log
        self._silent_since = time.monotonic()

    async def run(self, make_order: MakeOrder) -> str | None:
        """Place the order and answer the client; returns the error's type, or None for a result.

        A client that leaves cancels the call (D12), and nothing more is written for it (M15).

        Args:
            make_order: makes the order from what the caller may call now; asked again before each further try.

        Raises:
            Rejection: 503 where no worker had room; nothing was sent to the client.
        """
        call = self._dispatch.place(make_order())
        try:
            if call is not None:
                await call.wait(_UNWATCHED)
                if call.end is not None and call.remote is None and not call.progress:
                    return await self._finish(call)
        except BaseException:
            self._release(call)
            raise
        return await self._run_watched(call, make_order)

    async def _run_watched(self, call: Call | None, make_order: MakeOrder) -> str | None:
        outcome: str | None = "client_gone"
        # What is raised inside is raised again outside of the group, which would wrap it.
        failure: Rejection | ClientStalled | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_when_gone, tasks.cancel_scope)
            try:
                outcome = await self._follow(call, make_order)
            except (Rejection, ClientStalled) as error:
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return outcome

    async def _cancel_when_gone(self, scope: anyio.CancelScope) -> None:
        await self._client.wait_gone()
        scope.cancel()

    async def _follow(self, call: Call | None, make_order: MakeOrder) -> str | None:
        """Pass on what the call says until its end; wait for room first where it was refused."""
        try:
            while True:
                if call is None or call.refusal is not None:
                    self._release(call)
                    call = None
                    call = await self._dispatch.wait_for_room(make_order)
                await self._send_progress(call)
                if call.remote is not None:
                    return await self._finish_remote(call, call.remote)
                if call.end is not None:
                    return await self._finish(call)
                if not await call.wait(self._patience()):
                    await self._break_silence()
        finally:
            self._release(call)

    def _release(self, call: Call | None) -> None:
        if call is not None:
            self._calls.release(call)

    def _patience(self) -> float:
        """Seconds until a silent connection must show that it lives."""
        limit = self._settings.keepalive if self._client.is_streaming else self._settings.silent_after
        return max(0.0, self._silent_since + limit - time.monotonic())

    async def _break_silence(self) -> None:
        """Send a comment, since proxies cut quiet connections, and that is a cancellation (D17)."""
        await self._send(reply.KEEPALIVE)

    async def _send_progress(self, call: Call) -> None:
        """Pass reports on; the first makes the answer a stream (P5)."""
        token = self._target.token
        while call.progress:
            body = call.progress.popleft()
            if token is None:
                continue
            try:
                await self._send(reply.event(reply.progress(token, body)))
            except reply.NotSpliceable as error:
                self._log.error("a worker sent a malformed report", pool=call.order.pool, error=str(error))

    async def _send(self, data: bytes) -> None:
        if not self._client.is_streaming:
            await self._client.open_stream()
        await self._client.send_part(data)
        self._silent_since = time.monotonic()

    async def _finish_remote(self, call: Call, remote: Remote) -> str | None:
        """Fetch the result first, in room that is held until the client has it."""
        try:
            async with self._bodies.fetched(remote) as call.body:
                return await self._finish(call)
        except ResultLost as error:
            self._log.warning("result lost", pool=call.order.pool, worker=remote.worker, error=str(error))
            call.end = End.RESULT_LOST
            return await self._finish(call)

    async def _finish(self, call: Call) -> str | None:
        """Send the one end of the call, as an event where the answer is a stream already."""
        self._release(call)
        status, body, error_type = self._end(call)
        call.body = b""  # it is part of what is sent; a client that reads slowly need not hold both
        if not self._client.is_streaming:
            await self._client.answer(status, body)
            return error_type
        await self._send(reply.event(body))
        await self._client.close_stream()
        return error_type

    def _end(self, call: Call) -> tuple[int, bytes, str | None]:
        target = self._target
        try:
            if call.end is End.RESULT:
                return 200, reply.response(target.id, call.body, target.server), None
            if call.end is End.ERROR:
                return call.status, reply.error_body(target.id, call.body), "application_error"
        except reply.NotSpliceable as error:
            self._log.error("a worker sent a malformed end", pool=call.order.pool, error=str(error))
            return 200, reply.error(target.id, internal(target.reference)), "malformed_end"
        assert call.end is not None
        self._log.warning("uncertain call", pool=call.order.pool, worker=call.worker, end=call.end)
        return 200, reply.response(target.id, self._uncertain(call.end), target.server), f"uncertain_{call.end}"

    def _uncertain(self, end: End) -> bytes:
        """What the model reads where nobody knows whether the call ran (D3, I3)."""
        text = (
            f"{_UNCERTAIN[end]} The outcome is uncertain: it may have had its effect, in whole or in part. "
            "Find out, by a tool that reads, before calling it again. "
            f"(reference {self._target.reference})"
        )
        content = [{"type": "text", "text": text}]
        return reply.result_body({"resultType": "complete", "content": content, "isError": True})
