"""The whole edge in this process, as a target of a fuzzer: any bytes are a request, and none may hurt it.

What the bytes are: an HTTP/1.1 request as text, read with much patience, so that a fuzzer can change any part of it. In
one that says `HTTP/*` the headers are completed from the body, so that a changed body comes past those that mirror it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from mcpfleet.contracts.manifest import Definition
from mcpfleet.edge.settings import EdgeSettings
from tests.unit.edge import played_edge
from tests.unit.edge.asgi import Exchange, Post
from tests.vectors.http1 import content
from tests.vectors.making import Ask

VECTORS = Path(__file__).parents[1] / "vectors"
ANSWERS_WITHIN = 5.0
"""Seconds after which a request hangs."""
SETTINGS = EdgeSettings(queue_wait=0.001, max_request=100_000, large_body=1_000, max_values=500, read_timeout=0.05)
"""No worker is there, so a call that is let through need not wait for one."""


_COMPLETED = "HTTP/*"
_OWN = ("Host", "Content-Type", "Accept", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name")
_LONGEST = 4_096


class Hurt(Exception):
    """Raised when a request was answered by what no request may cause."""


class EdgeUnderFuzz:
    """An edge that answers one request after another."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._edge: played_edge.Edge | None = None
        self._stopped = asyncio.Event()

    def __enter__(self) -> EdgeUnderFuzz:
        self._runner.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _open(self) -> None:
        """Have a task of its own hold the edge open, since each request comes in another one."""
        opened = asyncio.Event()
        self._holding = asyncio.get_running_loop().create_task(self._hold(opened))
        await opened.wait()

    async def _hold(self, opened: asyncio.Event) -> None:
        annotated = {"type": "string", "x-mcp-header": "Region"}
        tools = (
            played_edge.tool("echo", text={"type": "string"}),
            played_edge.tool("mirror", region=annotated),
            played_edge.tool("ask", asks=("sampling",)),
        )
        greet = {"name": "greet", "arguments": [{"name": "name"}]}
        book = {"uriTemplate": "test://books/{book}", "name": "book"}
        others = (
            Definition(kind="prompt", name="greet", wire=greet, completes=("name",)),
            Definition(kind="resource", name="test://text", wire={"uri": "test://text", "name": "text"}),
            Definition(kind="template", name="test://books/{book}", wire=book),
        )
        async with played_edge.edge(*tools, *others, settings=SETTINGS) as self._edge:
            opened.set()
            await self._stopped.wait()

    async def _close(self) -> None:
        self._stopped.set()
        await self._holding

    def __call__(self, data: bytes) -> Exchange:
        """Have a request answered.

        Raises:
            Hurt: with a 500, with an exception, with an answer that is none, or not in time.
        """
        exchange = asked(data)
        self._runner.run(self._answer(exchange))
        check(exchange)
        return exchange

    async def _answer(self, exchange: Exchange) -> None:
        assert self._edge is not None
        async with asyncio.timeout(ANSWERS_WITHIN):
            await self._edge.application(exchange.scope, exchange.receive, exchange.send)
        errors = [line for line in self._edge.log.entries if line["log_level"] in ("error", "critical")]
        self._edge.log.entries.clear()
        if errors:
            raise Hurt(f"the edge logged {errors}")


def asked(data: bytes) -> Exchange:
    """Read bytes as a request: what no HTTP server would let through is left out."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    method, path, version = (*first.decode("latin-1").split(" ", 2), "", "")[:3]
    pairs = [line.partition(b":") for line in lines]
    headers = [(name.strip().lower(), value.strip(b" \t")) for name, _, value in pairs if _may_come(name, value)]
    exchange = Exchange(Post(method=method.upper() or "POST", raw=body), parts=_parts(body))
    exchange.scope["path"] = path.partition("?")[0]
    exchange.scope["headers"] = _completed(headers, body) if version == _COMPLETED else headers
    return exchange


def _completed(headers: list[tuple[bytes, bytes]], body: bytes) -> list[tuple[bytes, bytes]]:
    try:
        message = json.loads(body)
        own = Ask(message).pairs()
    except (ValueError, RecursionError):
        return headers
    known = {name for name, _ in headers}
    own_headers = [(str(name).lower().encode(), str(value).encode(errors="replace")) for name, value in own]
    return headers + [(name, value) for name, value in own_headers if name not in known]


def _may_come(name: bytes, value: bytes) -> bool:
    return bool(name.strip()) and not any(byte in value for byte in b"\0\r\n")


def _parts(body: bytes) -> list[bytes]:
    """Pieces as they might arrive."""
    return [body[:7], body[7:]] if len(body) > 7 else [body]


def check(exchange: Exchange) -> None:
    """Look at an answer.

    Raises:
        Hurt: it is none that a request may have.
    """
    if not exchange.is_over:
        raise Hurt("no whole answer")
    status, headers = exchange.status, dict(exchange.headers)
    if status == 500 or not 200 <= status < 600:
        raise Hurt(f"status {status}: {exchange.body!r}")
    if headers[b"content-length"] != b"%d" % len(exchange.body):
        raise Hurt("a length that is not the body's")
    if not exchange.body:
        return
    message: MutableMapping[str, Any] = json.loads(exchange.body)
    if message.get("jsonrpc") != "2.0" or ("result" in message) == ("error" in message):
        raise Hurt(f"no answer of JSON-RPC: {exchange.body!r}")


def corpus() -> Iterator[bytes]:
    """The vectors' requests, as they are and to be completed; those that are large by repetition are left out."""
    for path in sorted(VECTORS.glob("*.json")):
        for vector in json.loads(path.read_text())["vectors"]:
            request = vector["request"]
            if "bytes" in request:
                yield content(request["bytes"])[:_LONGEST]
                continue
            body = content(request.get("body", ""))
            if len(body) > _LONGEST or any(not isinstance(value, str) for _, value in request["headers"]):
                continue
            pairs = [(name, value) for name, value in request["headers"]]
            yield _written(request, pairs, "HTTP/1.1") + body
            yield _written(request, [(name, value) for name, value in pairs if name not in _OWN], _COMPLETED) + body


def _written(request: Mapping[str, Any], headers: Iterable[tuple[str, str]], version: str) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"{request['method']} {request['path']} {version}\r\n{lines}\r\n".encode()
