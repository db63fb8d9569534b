"""Serves HTTP by Hypercorn's connections, up to a bound of connections.

Hypercorn lets the event loop accept for as long as there are descriptors. Without one, uvloop closes the listening
socket silently, and the process needs descriptors for more than its clients.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.typing import LifespanState
from hypercorn.utils import wrap_app
from structlog.typing import FilteringBoundLogger

from mcpfleet.telemetry.instruments import ConnectionInstruments

_AT_ONCE: Final = 64
"""Connections that are accepted in one turn of the loop."""
_LOOK_AGAIN: Final = 0.25
"""Seconds after which a full server tries again to make room."""


@dataclass(frozen=True, slots=True)
class ConnectionLimit:
    """A bound on a server's connections, with the means to tell it, to count at it, and to get below it."""

    most: int
    """Connections at once; others wait to be accepted."""
    setting: str
    """The name of the setting that allows more."""
    instruments: ConnectionInstruments | None = None
    """Count connections and waits."""
    make_room: Callable[[], bool] | None = None
    """Closes an unused connection, if there is one. By default the oldest connection is cut, used or not."""


class HttpServer:
    """Serves one application on one listening socket."""

    def __init__(
        self,
        application: Any,
        config: Config,
        listening: socket.socket,
        limit: ConnectionLimit,
        *,
        log: FilteringBoundLogger,
        connection: type[TCPServer] = TCPServer,
    ) -> None:
        """Describe the server; `run` accepts.

        Args:
            application: answers requests, by ASGI, without a lifespan.
            config: the configuration of Hypercorn.
            listening: the socket for clients; it is closed when the server ends.
            limit: the bound on connections.
            log: tells of waits.
            connection: serves one connection.
        """
        self._application = wrap_app(application, config.wsgi_max_body_size, "asgi")
        self._config = config
        self._listening = listening
        self._limit = limit
        self._log = log
        self._connection = connection
        self._make_room = limit.make_room or self._cut_oldest
        self._context = WorkerContext(None)
        self._open: dict[asyncio.Task[None], None] = {}
        """The connections, the oldest first."""
        self._tasks = asyncio.TaskGroup()
        self._has_ended = False
        self._is_reading = False
        self._later: asyncio.TimerHandle | None = None

    async def run(self, stopped: Callable[[], Awaitable[object]]) -> None:
        """Serve until `stopped` returns; cut the remaining connections after the configuration's grace."""
        if self._limit.instruments is not None:
            self._limit.instruments.open.observe(lambda: len(self._open))
        async with self._tasks:
            try:
                self._read_on()
                await stopped()
            finally:  # before the wait for remaining connections: nobody could take another
                self._end()
            await self._context.terminated.set()
            if self._open:
                await asyncio.wait(self._open, timeout=self._config.graceful_timeout)
            for task in self._open:
                task.cancel()

    def _end(self) -> None:
        """Accept nothing more."""
        self._has_ended = True
        self._read_no_more()
        self._listening.close()

    # -- accepting ----------------------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if not self._has_ended and not self._is_reading:
            self._is_reading = True
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _read_no_more(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._is_reading:
            self._is_reading = False
            asyncio.get_running_loop().remove_reader(self._listening)

    def _accept(self) -> None:
        """Accept the waiting clients, as far as there is room."""
        if len(self._open) >= self._limit.most:
            self._log.warning("connection limit reached", open=len(self._open), setting=self._limit.setting)
            self._make_room()
            self._wait()
            return
        for _ in range(min(_AT_ONCE, self._limit.most - len(self._open))):
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # this process or machine has no descriptor or no memory left
                self._log.error("connection not accepted", error=str(error))
                self._make_room()
                self._wait()
                return
            accepted.setblocking(False)
            task = self._tasks.create_task(self._serve(accepted))
            self._open[task] = None
            task.add_done_callback(self._closed)

    def _wait(self) -> None:
        """Accept again as soon as a connection closes; after a while, try again to close one."""
        if self._limit.instruments is not None:
            self._limit.instruments.waits.add(1)
        self._read_no_more()
        self._later = asyncio.get_running_loop().call_later(_LOOK_AGAIN, self._read_on)

    def _closed(self, task: asyncio.Task[None]) -> None:
        del self._open[task]
        self._read_on()

    def _cut_oldest(self) -> bool:
        for task in self._open:
            return task.cancel()
        return False

    # -- serving ------------------------------------------------------------------------------------------------------

    async def _serve(self, accepted: socket.socket) -> None:
        """Serve one connection to its end, and let no failure of it end another."""
        loop = asyncio.get_running_loop()
        try:
            reader = asyncio.StreamReader(loop=loop)
            protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted)
        except OSError:  # the client has left already
            accepted.close()
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        state = LifespanState({})
        try:
            await self._connection(self._application, loop, self._config, self._context, state, reader, writer)
        except OSError:
            pass  # the client has vanished, and its socket shows that only at its close
        except Exception:
            self._log.exception("connection failed")
        finally:
            transport.abort()  # harmless to a closed one, and no descriptor stays open otherwise
