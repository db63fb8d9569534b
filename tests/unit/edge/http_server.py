"""An edge's HTTP server alone, over real sockets, with an application of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
from anyio.abc import SocketStream

from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.http_exchange import ClientGone, HttpExchange, while_there
from mcpfleet.edge.transport.hypercorn.server import EdgeConfig, run_server
from mcpfleet.telemetry.instruments import ConnectionInstruments
from mcpfleet.wire.errors import Rejection

Application = Callable[[Any, Any, Any], Awaitable[None]]


class StubApplication:
    """Reads bodies and answers.

    `/early` is answered before its body is read, `/slow` once it may be, `/deaf` too though its client has left, and
    `/waits` never.
    """

    def __init__(
        self, answer: bytes = b"{}", *, status: int = 200, timeout: float = 20.0, holds_unread: bool = False
    ) -> None:
        """Answer alike whatever is asked.

        Args:
            answer: the body of each answer.
            status: its status.
            timeout: seconds that a body, or a client that reads an answer, may take.
            holds_unread: read no body, and answer nothing until it may.
        """
        self.begun: list[str] = []
        """Paths of requests that came."""
        self.whole: list[str] = []
        """Paths of those whose bodies came whole."""
        self.left: list[str] = []
        """Paths of those whose clients left."""
        self.running = 0
        """Requests that are being answered."""
        self.may_answer = anyio.Event()
        self._answer, self._status, self._timeout, self._holds_unread = answer, status, timeout, holds_unread

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        client = HttpExchange(scope, receive, send, closing=False, write_timeout=self._timeout)
        self.begun.append(client.path)
        self.running += 1
        try:
            await self._serve(client)
        except ClientGone:
            self.left.append(client.path)
        except Rejection as rejection:
            await client.answer(rejection.status, headers=rejection.headers)
        finally:
            self.running -= 1

    async def _serve(self, client: HttpExchange) -> None:
        if not self._holds_unread and client.path != "/early":
            await client.read_body(10_000_000, self._timeout)
            self.whole.append(client.path)
        if self._holds_unread or client.path == "/deaf":
            await self.may_answer.wait()
        elif client.path == "/slow":
            await while_there(client, self.may_answer.wait)
        elif client.path == "/waits":
            await client.wait_gone()
            return
        await client.answer(self._status, self._answer)


@asynccontextmanager
async def serving(
    application: Application, *, instruments: ConnectionInstruments | None = None, within: float = 60, **settings: Any
) -> AsyncIterator[EdgeConfig]:
    """Serve for the length of a block, which may take so many seconds."""
    config = EdgeConfig(EdgeSettings(bind="127.0.0.1:0", **settings))
    stop = anyio.Event()
    with anyio.fail_after(within):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(run_server, instruments=instruments), application, config, stop)
            yield config
            stop.set()


async def connect(config: EdgeConfig) -> SocketStream:
    return await anyio.connect_tcp(*config.listening.getsockname()[:2])
