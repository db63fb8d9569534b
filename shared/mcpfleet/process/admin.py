"""The admin port: /livez, /readyz, /metrics and the services' pages, apart from the clients' port."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from hypercorn.config import Config
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope

from mcpfleet.process.admin_connection import AdminConnection
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.host import connections_within
from mcpfleet.process.http_server import ConnectionLimit, HttpServer
from mcpfleet.process.service import Page, Process
from mcpfleet.process.settings import host_and_port
from mcpfleet.telemetry.exposition import MEDIA_TYPE, Exposition

GRACE: Final = 0.5
"""Seconds that a running scrape has to finish once the process ends."""

MOST_CONNECTIONS: Final = 64
"""Connections that the admin port takes at once: probes, scrapes and a few consoles."""

_BACKLOG: Final = 1024
"""Connections that may wait to be accepted: a probe beyond them would wait a second and more to try again."""

_OWN: Final = ("/livez", "/readyz", "/metrics")
_Answer = tuple[int, str, bytes]
"""Status, media type, body."""


def listen(bind: str) -> socket.socket:
    """Open the admin port; raises `ConfigurationError` if the address is not available."""
    host, port = host_and_port(bind)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigurationError(f"MCPFLEET_ADMIN_BIND: cannot listen on {bind}: {error.strerror}") from None


def url(listening: socket.socket) -> str:
    """Return the address that reaches the port from this machine."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(
    listening: socket.socket, processes: Sequence[Process[Any]], stopped: Callable[[], Awaitable[object]]
) -> None:
    """Answer on the port until `stopped` returns, and then close the socket."""
    config = Config()
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    config.graceful_timeout = GRACE
    config.include_server_header = False
    listening.setblocking(False)
    server = HttpServer(
        AdminApp(processes),
        config,
        listening,
        ConnectionLimit(connections_within(MOST_CONNECTIONS), "MCPFLEET_ADMIN_BIND"),
        log=processes[0].log,
        connection=AdminConnection,
    )
    await server.run(stopped)


class AdminApp:
    """The ASGI application of the admin port, for all services of the process."""

    def __init__(self, processes: Sequence[Process[Any]]) -> None:
        self._processes = processes
        self._exposition = Exposition({process.name: process.telemetry.metrics for process in processes})

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            page = self._page(scope)
            await (page(scope, receive, send) if page is not None else self._answer(scope, send))

    def _page(self, scope: HTTPScope) -> Page | None:
        return self._processes[0].pages.find(scope["path"]) if scope["method"] in ("GET", "HEAD") else None

    async def _answer(self, scope: HTTPScope, send: ASGISendCallable) -> None:
        status, media_type, body = self._look_up(scope)
        headers = [
            (b"content-type", media_type.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        content = b"" if scope["method"] == "HEAD" else body
        await send({"type": "http.response.body", "body": content, "more_body": False})

    def _look_up(self, scope: HTTPScope) -> _Answer:
        if scope["path"] not in (*_OWN, *self._processes[0].pages):
            return 404, "text/plain", b"the admin port has /livez, /readyz and /metrics\n"
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "text/plain", b"GET or HEAD\n"
        if scope["path"] == "/livez":
            # That this runs is the proof: the loop answers.
            return 200, "text/plain", b"ok\n"
        if scope["path"] == "/readyz":
            return self._readiness()
        return 200, MEDIA_TYPE, self._exposition.text()

    def _readiness(self) -> _Answer:
        ready = all(process.health.ready for process in self._processes)
        told = {
            "ready": ready,
            "stopping": any(process.stopping.is_set() for process in self._processes),
            "services": {
                process.name: {
                    name: {"ok": condition.ok, "why": condition.why}
                    for name, condition in process.health.conditions.items()
                }
                for process in self._processes
            },
        }
        return 200 if ready else 503, "application/json", json.dumps(told).encode() + b"\n"
