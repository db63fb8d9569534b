"""An edge's HTTP server alone, over real sockets, with an application of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
from anyio.abc import SocketStream

from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.hypercorn.server import EdgeConfig, run_server
from mcpfleet.telemetry.instruments import ConnectionInstruments

Application = Callable[[Any, Any, Any], Awaitable[None]]


@asynccontextmanager
async def serving(
    desk: Application, *, instruments: ConnectionInstruments | None = None, within: float = 60, **settings: Any
) -> AsyncIterator[EdgeConfig]:
    """Serve for the length of a block, which may take so many seconds."""
    config = EdgeConfig(EdgeSettings(bind="127.0.0.1:0", **settings))
    stop = anyio.Event()
    with anyio.fail_after(within):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(run_server, instruments=instruments), desk, config, stop)
            yield config
            stop.set()


async def connect(config: EdgeConfig) -> SocketStream:
    return await anyio.connect_tcp(*config.listening.getsockname()[:2])
