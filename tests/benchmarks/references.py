"""The references of the benchmarks, each a process: `python -m tests.benchmarks.references NAME`; it prints its URL.

`constant` is Hypercorn answering the same bytes to everything; `fanout` is it sending the same
event to all streams; `sdk` is the official Python SDK's server with one tool,
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
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from hypercorn.asyncio import serve
from hypercorn.config import Config
from mcp.server.mcpserver import Context

from tests.kit.node import NODE, environment

TYPESCRIPT = Path(__file__).with_name("typescript")
CONSTANT = (
    b'{"jsonrpc":"2.0","id":1,"result":{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"constant","version":"1"}},'
    b'"resultType":"complete","content":[{"type":"text","text":"5"}],"isError":false,"structuredContent":5}}'
)

ACKNOWLEDGED = (
    b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":'
    b'{"_meta":{"io.modelcontextprotocol/subscriptionId":1},'
    b'"notifications":{"resourceSubscriptions":["library://books/1"]}}}\n\n'
)
UPDATED = (
    b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/resources/updated","params":'
    b'{"_meta":{"io.modelcontextprotocol/subscriptionId":1},"uri":"library://books/1"}}\n\n'
)

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def constant(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Read the body, and answer the same bytes to everything."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await answer_constant(send)


async def answer_constant(send: Send) -> None:
    """Answer the same bytes."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(CONSTANT))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": CONSTANT})


def listening() -> socket.socket:
    """A free port, whose URL is said at once: connections wait until the server runs."""
    found = socket.create_server(("127.0.0.1", 0), backlog=2048)
    sys.stdout.write(f"http://127.0.0.1:{found.getsockname()[1]}/mcp\n")
    sys.stdout.flush()
    return found


def hypercorn_config() -> Config:
    """The settings that an edge has too."""
    config = Config()
    config.bind = [f"fd://{listening().detach()}"]
    config.accesslog = None
    config.errorlog = None
    config.keep_alive_max_requests = 1_000_000_000
    return config


def serve_hypercorn() -> None:
    """Run `constant`."""
    uvloop.run(serve(constant, hypercorn_config(), shutdown_trigger=asyncio.Event().wait))  # type: ignore[arg-type]  # plain ASGI


class Fanout:
    """Opens a stream for each `subscriptions/listen`, and writes the same bytes to all at each other request."""

    def __init__(self) -> None:
        self._streams: dict[int, asyncio.Queue[bytes]] = {}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            return
        body = (await receive())["body"]
        if b"subscriptions/listen" not in body:
            for queue in self._streams.values():
                queue.put_nowait(UPDATED)
            await answer_constant(send)
            return
        queue = self._streams[id(scope)] = asyncio.Queue()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": ACKNOWLEDGED, "more_body": True})
        while True:
            await send({"type": "http.response.body", "body": await queue.get(), "more_body": True})


def serve_fanout() -> None:
    """Run `Fanout`, with the settings that an edge has too."""
    uvloop.run(serve(Fanout(), hypercorn_config(), shutdown_trigger=asyncio.Event().wait))  # type: ignore[arg-type]  # plain ASGI


def serve_sdk_fanout() -> None:
    """Run the official Python SDK's server, with room for more streams than it allows by default."""
    import uvicorn
    from mcp.server import MCPServer
    from mcp.server.mcpserver import server
    from mcp.server.subscriptions import ListenHandler

    vars(server)["ListenHandler"] = partial(ListenHandler, max_subscriptions=100_000)
    reference = MCPServer("reference")

    @reference.tool()
    async def touch(ctx: Context) -> str:
        """Say that a book has changed."""
        await ctx.notify_resource_updated("library://books/1")
        return "touched"

    @reference.resource("library://books/{book}")
    async def book(book: int) -> str:
        """A book."""
        return f"book {book}"

    found = listening()
    config = uvicorn.Config(reference.streamable_http_app(), log_level="error", loop="uvloop", backlog=2048)
    uvicorn.Server(config).run([found])


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
    "fanout": serve_fanout,
    "sdk": serve_sdk,
    "sdk_fanout": serve_sdk_fanout,
    "typescript": serve_typescript,
}

if __name__ == "__main__":
    SERVE[sys.argv[1]](*sys.argv[2:])
