"""What mcpfleet is measured beside, each as a process of its own: `python references.py NAME`; it prints its URL.

`constant` is Hypercorn answering the same bytes to everything; `sdk` is the official Python SDK's server with one tool,
as its documentation starts it; `collector` takes traces and forgets them.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvloop
from hypercorn.asyncio import serve
from hypercorn.config import Config

CONSTANT = (
    b'{"jsonrpc":"2.0","id":1,"result":{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"constant","version":"1"}},'
    b'"resultType":"complete","content":[{"type":"text","text":"5"}],"isError":false,"structuredContent":5}}'
)

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def constant(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Read the body, and answer the same bytes to everything."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(CONSTANT))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": CONSTANT})


def listening() -> socket.socket:
    """A free port, whose URL is said at once: connections wait until the server runs."""
    found = socket.create_server(("127.0.0.1", 0), backlog=2048)
    sys.stdout.write(f"http://127.0.0.1:{found.getsockname()[1]}/mcp\n")
    sys.stdout.flush()
    return found


def serve_hypercorn() -> None:
    """Run `constant`, with the settings that an edge has too."""
    config = Config()
    config.bind = [f"fd://{listening().detach()}"]
    config.accesslog = None
    config.errorlog = None
    config.keep_alive_max_requests = 1_000_000_000
    uvloop.run(serve(constant, config, shutdown_trigger=asyncio.Event().wait))  # type: ignore[arg-type]  # plain ASGI


def serve_sdk() -> None:
    """Run the official SDK's server."""
    import uvicorn
    from mcp.server import MCPServer

    server = MCPServer("reference")

    @server.tool()
    async def add(left: int, right: int) -> int:
        """Add two integers."""
        return left + right

    found = listening()
    config = uvicorn.Config(server.streamable_http_app(), log_level="error", loop="uvloop")
    uvicorn.Server(config).run([found])


if __name__ == "__main__":
    {"constant": serve_hypercorn, "collector": serve_hypercorn, "sdk": serve_sdk}[sys.argv[1]]()
