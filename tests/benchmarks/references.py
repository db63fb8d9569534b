"""What mcpfleet is measured beside, each a process: `python -m tests.benchmarks.references NAME`; it prints its URL.

`constant` is Hypercorn answering the same bytes to everything; `sdk` is the official Python SDK's server with one tool,
as its documentation starts it; `typescript FOLDER` is the official TypeScript SDK's, likewise, whose packages are
installed in that folder; `collector` takes traces and forgets them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import uvloop
from hypercorn.asyncio import serve
from hypercorn.config import Config

from tests.kit.node import NODE, environment

TYPESCRIPT = Path(__file__).with_name("typescript")
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
    """Run the official Python SDK's server."""
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


def serve_typescript(installed: str) -> None:
    """Become Node with the official TypeScript SDK's server, put where it finds its packages."""
    program = shutil.copy(TYPESCRIPT / "server.mjs", installed)
    os.execve(NODE, [str(NODE), program], environment())


SERVE: dict[str, Callable[..., None]] = {
    "constant": serve_hypercorn,
    "collector": serve_hypercorn,
    "sdk": serve_sdk,
    "typescript": serve_typescript,
}

if __name__ == "__main__":
    SERVE[sys.argv[1]](*sys.argv[2:])
