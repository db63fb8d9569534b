"""HTTP/2, where one stream's fault must not end the others: they are other callers', behind one balancer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import Event, ResponseReceived, StreamEnded, StreamReset

from mcpfleet.edge.http.client import Client
from mcpfleet.edge.http.server import EdgeConfig, run_server
from mcpfleet.edge.settings import EdgeSettings

HEAD = {b":method": b"POST", b":path": b"/", b":scheme": b"http", b":authority": b"a"}


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    """Refuse every request before its body is read."""
    if scope["type"] == "http":
        await Client(scope, receive, send, closing=False, write_timeout=5.0).answer(403, b"{}")


class Peer:
    """A client that sends whatever it is told to."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        config = H2Configuration(
            header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self.http = H2Connection(config)
        self.events: list[Event] = []

    async def send(self) -> None:
        """Send what was said to `http`."""
        await self._stream.send(self.http.data_to_send())

    async def until(self, kind: type[Event], stream: int) -> Any:
        """Wait for an event of a stream."""
        while True:
            for event in self.events:
                if isinstance(event, kind) and event.stream_id == stream:  # type: ignore[attr-defined]
                    return event
            await self.receive()

    async def receive(self) -> None:
        """Take what comes next."""
        self.events.extend(self.http.receive_data(await self._stream.receive()))

    async def request(self, stream: int, head: Iterable[tuple[bytes, bytes]] = HEAD.items(), *, ends: bool) -> None:
        """Send a request's head."""
        self.http.send_headers(stream, list(head), end_stream=ends)
        await self.send()


@asynccontextmanager
async def connected() -> AsyncIterator[Peer]:
    """Connect to a server for the length of a block."""
    config = EdgeConfig(EdgeSettings(bind="127.0.0.1:0"))
    stop = anyio.Event()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_server, refuse, config, stop)
            async with await anyio.connect_tcp(*config.listening.getsockname()[:2]) as stream:
                peer = Peer(stream)
                peer.http.initiate_connection()
                await peer.send()
                yield peer
            stop.set()


async def test_a_body_that_comes_after_its_answer_harms_no_other_stream() -> None:
    """It was refused by its head; the client need not have heard of it yet."""
    async with connected() as peer:
        await peer.request(1, ends=False)
        await peer.until(StreamEnded, 1)
        for _ in range(20):
            peer.http.send_data(1, b"x" * 10_000)
            await peer.send()
            if peer.http.local_flow_control_window(1) < 10_000:
                await peer.receive()
        peer.http.end_stream(1)
        await peer.request(3, ends=True)
        answer = await peer.until(ResponseReceived, 3)
    assert answer.headers[0] == (b":status", b"403")


@pytest.mark.parametrize(
    "head",
    [
        pytest.param({**HEAD, b":path": "/é".encode()}, id="a path that is no ASCII"),
        pytest.param({b":method": b"CONNECT", b":authority": b"a"}, id="a tunnel"),
    ],
)
async def test_a_head_that_cannot_be_read_ends_its_stream_alone(head: dict[bytes, bytes]) -> None:
    async with connected() as peer:
        await peer.request(1, head.items(), ends=True)
        reset = await peer.until(StreamReset, 1)
        await peer.request(3, ends=True)
        answer = await peer.until(ResponseReceived, 3)
    assert reset.error_code == ErrorCodes.PROTOCOL_ERROR
    assert answer.headers[0] == (b":status", b"403")
