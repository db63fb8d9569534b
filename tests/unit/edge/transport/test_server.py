"""The headers that the server itself adds to every response, and how it stops."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.hypercorn.server import EdgeConfig, run_server
from mcpfleet.process.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("jumping")

OK = b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer as the edge does: JSON, nothing, or a stream that goes on."""
    if scope["type"] != "http":
        return
    kind = {"/stream": b"text/event-stream"}.get(scope["path"], b"application/json")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": b"{}", "more_body": scope["path"] == "/stream"})
    if scope["path"] == "/stream":
        while (await receive())["type"] != "http.disconnect":
            pass


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[EdgeConfig, anyio.Event]]:
    """A server on a free port, for the length of a block."""
    config = EdgeConfig(EdgeSettings(bind="127.0.0.1:0"))
    stop = anyio.Event()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_server, application, config, stop)
            yield config, stop
            stop.set()


async def connect(config: EdgeConfig) -> SocketStream:
    """Connect as soon as the server lets us."""
    while True:
        try:
            return await anyio.connect_tcp(*config.listening.getsockname()[:2])
        except OSError:
            await anyio.sleep(0.01)


async def head(config: EdgeConfig, request: bytes) -> tuple[int, list[tuple[str, str]]]:
    """Send bytes, and read the head of what comes back."""
    async with await connect(config) as stream:
        await stream.send(request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive()
    first, *lines = data.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    pairs = [line.partition(":") for line in lines]
    return int(first.split()[1]), [(name.lower(), value.strip()) for name, _, value in pairs]


@pytest.mark.rule("T9")
@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(OK, 200, id="JSON"),
        pytest.param(OK.replace(b"/x", b"/stream"), 200, id="a stream"),
        pytest.param(b"nonsense\r\n\r\n", 400, id="no HTTP"),
        pytest.param(b"GET /x HTTP/1.1\r\n\r\n", 400, id="no host"),
        pytest.param(b"GET /x HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 200_000 + b"\r\n\r\n", 431, id="a head without end"),
    ],
)
async def test_every_response_forbids_caching_once_what_the_parser_refuses_too(
    request_bytes: bytes, status: int
) -> None:
    """M13: a head that is too large is 431."""
    async with serving() as (config, _):
        got, headers = await head(config, request_bytes)
    assert got == status
    assert [value for name, value in headers if name == "cache-control"] == ["no-store, no-transform"]


async def test_a_response_says_when_it_was_made_and_not_by_what() -> None:
    async with serving() as (config, _):
        _, headers = await head(config, OK)
    names = [name for name, _ in headers]
    assert names.count("date") == 1
    assert "server" not in names


async def test_a_server_that_is_told_to_stop_closes_what_is_left_within_a_second() -> None:
    """The drain has waited before."""
    async with serving() as (config, stop), await connect(config) as stream:
        await stream.send(OK.replace(b"/x", b"/stream"))
        await stream.receive()
        stop.set()
        with anyio.fail_after(3):
            async for _ in stream:
                pass


async def test_a_client_that_comes_before_the_server_runs_is_not_turned_away() -> None:
    """The socket listens from the first moment: whoever is told the address may use it."""
    config = EdgeConfig(EdgeSettings(bind="127.0.0.1:0"))
    with config.listening:
        async with await anyio.connect_tcp(*config.listening.getsockname()[:2]):
            pass


@pytest.mark.rule("N26")
def test_the_default_address_is_loopback() -> None:
    assert EdgeSettings().bind == "127.0.0.1:8000"


async def test_a_server_says_where_it_is_reached() -> None:
    async with serving() as (config, _):
        port = config.listening.getsockname()[1]
        assert config.url("/mcp") == f"http://127.0.0.1:{port}/mcp"


def test_an_address_that_is_taken_is_told_with_its_setting() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match=f"MCPFLEET_BIND={bind}"):
            EdgeConfig(EdgeSettings(bind=bind))
