"""Configures Hypercorn for an edge: the socket, the headers of all responses, and a shutdown on request."""

from __future__ import annotations

import logging
import socket
import time
from typing import Any, Final
from wsgiref.handlers import format_date_time

import anyio
import hypercorn.protocol
import structlog
from hypercorn.config import Config
from structlog.typing import FilteringBoundLogger

from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.hypercorn.connection import Connection
from mcpfleet.edge.transport.hypercorn.http1 import Http1
from mcpfleet.edge.transport.hypercorn.http2.protocol import Http2
from mcpfleet.edge.transport.hypercorn.lifetimes import GoAways, MultiplexedRequests, Waits
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.host import connections_within
from mcpfleet.process.http_server import ConnectionLimit, HttpServer
from mcpfleet.process.settings import host_and_port
from mcpfleet.telemetry.instruments import ConnectionInstruments

_BACKLOG: Final = 2048
"""Connections that may wait to be accepted. Hypercorn's 100 would refuse a burst of clients (D14)."""
_KEEP_ALIVE: Final = 75.0
"""Seconds that a connection without a request is kept."""
_SEND_BUFFER: Final = 256 * 1024
"""Bytes that the kernel buffers for a client that does not read; few, so that the edge notices."""
_CACHE_CONTROL: Final = (b"cache-control", b"no-store, no-transform")


class EdgeConfig(Config):
    """Hypercorn's settings for an edge."""

    def __init__(self, settings: EdgeSettings) -> None:
        super().__init__()
        self.backlog = _BACKLOG
        self.waits = Waits(keep_alive=_KEEP_ALIVE, head=settings.head_timeout)
        self.go_aways = GoAways()
        self.keep_alive_max_requests = 1_000_000_000
        self.h2_max_concurrent_streams = 500
        self.write_timeout = settings.write_timeout
        self.graceful_timeout = 1.0
        self.accesslog = None
        self.errorlog = logging.getLogger("hypercorn.error")
        self.most_connections = connections_within(settings.max_connections)
        most_requests = self.most_connections + settings.max_streams
        self.multiplexed_requests = MultiplexedRequests(most_requests, self.waits.end_multiplexed)
        self.listening = _listen(settings)
        self._date = (0, b"")

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:  # noqa: ARG002  # Hypercorn's signature
        """Return the headers of every response, including those to malformed requests (T9)."""
        now = int(time.time())
        if self._date[0] != now:  # formatting it costs four microseconds
            self._date = (now, format_date_time(now).encode())
        return [_CACHE_CONTROL, (b"date", self._date[1])]

    def make_room(self) -> bool:
        """Close a connection without a request for a waiting client; return False where there is none."""
        return self.waits.make_room()

    def url(self, path: str) -> str:
        """Return the URL by which clients on this machine reach a path."""
        host, port = self.listening.getsockname()[:2]
        return f"http://[{host}]:{port}{path}" if ":" in host else f"http://{host}:{port}{path}"


async def run_server(
    application: Any,
    config: EdgeConfig,
    stop: anyio.Event,
    *,
    instruments: ConnectionInstruments | None = None,
    log: FilteringBoundLogger | None = None,
) -> None:
    """Serve an ASGI application until `stop` is set; the remaining connections are then closed within a second."""

    async def stopped() -> None:
        await stop.wait()
        config.waits.end_all()

    # Hypercorn has no other place for these classes.
    hypercorn.protocol.H11Protocol = Http1  # type: ignore[assignment, attr-defined]
    hypercorn.protocol.H2Protocol = Http2  # type: ignore[assignment, attr-defined]
    server = HttpServer(
        application,
        config,
        config.listening,
        ConnectionLimit(config.most_connections, "MCPFLEET_MAX_CONNECTIONS", instruments, config.make_room),
        log=log or structlog.get_logger(),
        connection=Connection,
    )
    await server.run(stopped)


def _listen(settings: EdgeSettings) -> socket.socket:
    host, port = host_and_port(settings.bind)
    host = host or "0.0.0.0"  # noqa: S104  # the operator's choice, checked by `contracts/access`
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: ends a connection whose client takes no bytes any more
            milliseconds = round(settings.write_timeout * 1000)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        listening.bind((host, port))
        listening.listen(_BACKLOG)  # clients that come before the server runs wait for it
    except OSError as error:
        listening.close()
        raise ConfigurationError(f"cannot listen on MCPFLEET_BIND={settings.bind}: {error}") from error
    listening.setblocking(False)
    return listening
