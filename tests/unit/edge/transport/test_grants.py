"""Nothing that depends on an ended right leaves a socket, wherever it waits (X53)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import httpx2
import pytest
from hypercorn.asyncio.worker_context import EventWrapper

from mcpfleet.edge.streams.stream import Exit
from mcpfleet.edge.transport.grant import Frame, Grant
from mcpfleet.edge.transport.http_exchange import HttpExchange
from mcpfleet.edge.transport.hypercorn.http2.stream import SendBuffer
from mcpfleet.wire.notices import LIST_CHANGED, resource_updated
from tests.kit.waiting import until
from tests.unit.edge.http_server import serving
from tests.unit.edge.streams.opened import URI, stream

NOTICE = resource_updated(URI)


class Revoking:
    """Sends parts of a grant, and ends the grant before the event loop's turn, and so before any socket write."""

    def __init__(self) -> None:
        self.dropped: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        client = HttpExchange(scope, receive, send, closing=False, write_timeout=5.0)
        await client.read_body(1000, 5.0)
        await client.open_stream()
        await anyio.sleep(0.01)  # the head is written, so that HTTP/1.1 takes its fast way
        grant = Grant()
        for data in (b"one ", b"two "):
            await client.send_part(data, Frame(data, grant, partial(self.dropped.append, data)))
        grant.end()
        await client.send_part(b"free ")
        await client.send_part(b"three ", Frame(b"three ", grant, partial(self.dropped.append, b"three ")))
        await anyio.sleep(0.01)
        await client.close_stream()


@pytest.mark.rule("X53")
@pytest.mark.parametrize("http2", [False, True])
async def test_bytes_of_an_ended_grant_are_left_out_before_the_socket_gets_them(http2: bool) -> None:
    application = Revoking()
    async with (
        serving(application) as config,
        httpx2.AsyncClient(http1=not http2, http2=http2, verify=False, timeout=10) as http,
    ):
        response = await http.post(config.url("/"), content=b"{}")
    assert response.text == "free three "
    assert application.dropped == [b"one ", b"two "]


@pytest.mark.rule("X53")
async def test_a_frame_that_waits_for_a_window_is_asked_again_before_it_goes() -> None:
    buffer, grant, dropped = SendBuffer(EventWrapper), Grant(), list[str]()

    def frame(data: bytes) -> Frame:
        return Frame(data, grant, lambda: dropped.append(data.decode()))

    await buffer.push(b"aa")
    for data in (b"bbb", b"ccc"):
        await buffer.push(data, frame(data))
    assert await buffer.pop(3) == b"aab"
    grant.end()
    await buffer.push(b"ddd", frame(b"ddd"))
    assert await buffer.pop(2) == b"", "it was begun, so its rest waits for the outcome"
    grant.confirm()
    assert await buffer.pop(2) == b"bb"
    assert await buffer.pop(9) == b"ddd"
    assert dropped == ["ccc"]


@pytest.mark.rule("X53")
async def test_a_change_that_was_not_written_waits_again() -> None:
    opened = stream()
    held: list[Callable[[], None]] = []

    async def send_part(data: bytes, frame: Frame | None = None) -> None:
        if frame is None:
            await exchange.send_part(data)
            return
        opened.stream.fence()
        assert not frame.is_current
        held.append(frame.drop)
        frame.drop()

    class Fencing:
        """The exchange, whose grant ends between the stream and the socket."""

        def __getattr__(self, name: str) -> Any:
            return send_part if name == "send_part" else getattr(exchange, name)

    exchange = opened.stream._exchange
    opened.stream._exchange = Fencing()  # type: ignore[assignment]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(opened.run)
        await opened.told(1)
        opened.stream.offer(URI, NOTICE)
        await until(lambda: held)
        opened.stream.offer("tools", LIST_CHANGED["tools"])
        opened.stream._exchange = exchange
        assert opened.stream.lift() == {URI: NOTICE, "tools": LIST_CHANGED["tools"]}
        opened.stream.end(Exit.SHUTDOWN)
