"""Commands against a server that speaks 2025 alone: the official SDK's, without what it has for newer clients."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel

from tests.kit.commands import mcpfleet
from tests.kit.waiting import until

REFUSAL = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Bad Request: Missing session ID"}}


class Place(BaseModel):
    """Where something goes."""

    city: str


class OldServer:
    """The official SDK's server. It refuses a request of another revision, as its releases of 2025 do."""

    def __init__(self) -> None:
        self.tokens: set[str] = set()
        """The credentials that it has seen."""
        self.methods: set[str] = set()
        """The HTTP methods with a session."""
        server = MCPServer("old")
        server.tool()(order)
        server.resource("shop://terms")(terms)
        self._app: Any = server.streamable_http_app()
        self._uvicorn = uvicorn.Server(uvicorn.Config(self, port=0, ws="none", log_level="error"))
        self._thread = threading.Thread(target=self._uvicorn.run)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request."""
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http":
            self.tokens.add(headers.get(b"authorization", b"").decode())
            if b"mcp-session-id" in headers:
                self.methods.add(scope["method"])
            if not headers.get(b"mcp-protocol-version", b"2025").startswith(b"2025"):
                head = [(b"content-type", b"application/json")]
                await send({"type": "http.response.start", "status": 400, "headers": head})
                await send({"type": "http.response.body", "body": json.dumps(REFUSAL).encode()})
                return
        await self._app(scope, receive, send)

    async def start(self) -> str:
        """Start it; returns its URL."""
        self._thread.start()
        await until(lambda: self._uvicorn.started, within=30)
        return f"http://127.0.0.1:{self._uvicorn.servers[0].sockets[0].getsockname()[1]}/mcp"

    def stop(self) -> None:
        """Have it end."""
        self._uvicorn.should_exit = True
        self._thread.join()


async def order(item: str, context: Context) -> str:
    """Order something."""
    answer = await context.elicit("Where to?", Place)
    return f"{item} to {answer.data.city}" if answer.action == "accept" else f"{item} stays"


def terms() -> str:
    """Tell the terms."""
    return "No returns."


@pytest.fixture
def old() -> Iterator[OldServer]:
    server = OldServer()
    yield server
    server.stop()


async def test_a_question_in_a_session_is_asked_and_answered_within_the_call(old: OldServer) -> None:
    url = await old.start()
    asked = await mcpfleet("call", url, "order", "item=tea", "--answer", "city=Oslo")
    assert (asked.returncode, "tea to Oslo" in asked.stdout) == (0, True), asked.stderr
    declined = await mcpfleet("call", url, "order", "item=tea", "--answer", "question=decline")
    assert (declined.returncode, "tea stays" in declined.stdout) == (0, True), declined.stderr
    assert {"GET", "POST", "DELETE"} <= old.methods


async def test_each_command_takes_its_token_from_a_file(old: OldServer, tmp_path: Path) -> None:
    url, token = await old.start(), tmp_path / "token"
    token.write_text("s3cret\n")
    for command in ("list {}", "read {} shop://terms", "call {} order item=tea --answer *=decline"):
        done = await mcpfleet(*command.format(url).split(), "--token", f"@{token}")
        assert done.returncode == 0, done.stderr
    assert old.tokens == {"Bearer s3cret"}
    lacking = await mcpfleet("watch", url, "--token", f"@{tmp_path / 'none'}")
    assert (lacking.returncode, "--token: cannot read" in lacking.stderr) == (2, True)
