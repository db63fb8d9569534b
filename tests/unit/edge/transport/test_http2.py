"""HTTP/2, where one stream's fault must not end the others: they are other callers', behind one balancer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, ResponseReceived, StreamEnded, StreamReset
from hyperframe.frame import DataFrame, GoAwayFrame

from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.http_exchange import HttpExchange
from mcpfleet.edge.transport.hypercorn.http2.budget import Budget
from mcpfleet.edge.transport.hypercorn.http2.frames import FrameReader
from mcpfleet.edge.transport.hypercorn.lifetimes import MultiplexedRequests
from mcpfleet.edge.transport.hypercorn.server import EdgeConfig, run_server
from tests.kit.h2_bytes import END_HEADERS, END_STREAM, HEADERS, PREFACE, frame
from tests.kit.http2 import HEAD, Frames, Peer
from tests.kit.waiting import until


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    """Refuse every request before its body is read."""
    if scope["type"] == "http":
        await HttpExchange(scope, receive, send, closing=False, write_timeout=5.0).answer(403, b"{}")


class Slow:
    """Answers a request to /slow when it is told to, and others at once."""

    def __init__(self) -> None:
        self.may_end = anyio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer."""
        if scope["type"] == "http":
            if scope["path"] == "/slow":
                await self.may_end.wait()
            await HttpExchange(scope, receive, send, closing=False, write_timeout=5.0).answer(200, b"{}")


def served() -> EdgeConfig:
    """Serve on a free port."""
    return EdgeConfig(EdgeSettings(bind="127.0.0.1:0"))


@asynccontextmanager
async def connected(application: Any = refuse, config: EdgeConfig | None = None) -> AsyncIterator[Peer]:
    """Connect to a server for the length of a block."""
    config = config or served()
    stop = anyio.Event()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_server, application, config, stop)
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


NO_NEW_REQUEST = 2**31 - 1


@pytest.mark.rule("D14")
async def test_an_idle_client_is_led_away_at_once_and_its_last_request_answered() -> None:
    config = served()
    async with connected(Slow(), config) as peer:
        frames = Frames(peer)
        await peer.request(1, ends=True)
        await frames.until(DataFrame, 1)
        config.go_aways.lead_away(busy=False)
        told = await frames.until(GoAwayFrame, 0)
        await peer.request(3, ends=True)  # it crossed that on its way
        await frames.until(DataFrame, 3)
    assert (told.last_stream_id, told.error_code) == (NO_NEW_REQUEST, ErrorCodes.NO_ERROR)


@pytest.mark.rule("D14")
async def test_a_client_that_waits_for_an_answer_is_led_away_when_it_has_it() -> None:
    """Some libraries give up what runs when they are told earlier."""
    config, slow = served(), Slow()
    async with connected(slow, config) as peer:
        frames = Frames(peer)
        await peer.request(1, {**HEAD, b":path": b"/slow"}.items(), ends=True)
        await peer.request(3, ends=True)
        await frames.until(DataFrame, 3)
        config.go_aways.lead_away(busy=False)
        slow.may_end.set()
        await frames.until(DataFrame, 1)
        told = await frames.until(GoAwayFrame, 0)
    assert told.last_stream_id == NO_NEW_REQUEST


@pytest.mark.rule("D14")
async def test_a_busy_client_is_led_away_and_gets_all_its_answers() -> None:
    config, slow = served(), Slow()
    async with connected(slow, config) as peer:
        frames = Frames(peer)
        await peer.request(1, {**HEAD, b":path": b"/slow"}.items(), ends=True)
        await peer.request(3, ends=True)
        await frames.until(DataFrame, 3)
        config.go_aways.lead_away(busy=False)
        config.go_aways.lead_away(busy=True)
        await frames.until(GoAwayFrame, 0)
        slow.may_end.set()
        await frames.until(DataFrame, 1)


@pytest.mark.rule("D14")
async def test_a_connection_that_is_closed_names_the_last_request_that_was_taken() -> None:
    config = served()
    async with connected(Slow(), config) as peer:
        await peer.request(1, ends=True)
        await peer.until(StreamEnded, 1)
        config.waits.end_all()
        ended = await peer.until_closed()
    assert [event.last_stream_id for event in ended if isinstance(event, ConnectionTerminated)] == [1]


@pytest.mark.usefixtures("jumping")
async def test_a_connection_that_is_over_is_not_kept_for_the_farewell() -> None:
    """Nor is one whose client broke the protocol: else anybody could fill the edge's memory."""
    config = served()
    async with connected(Slow(), config) as peer:
        await peer.request(1, ends=True)
        await peer.until(StreamEnded, 1)
        assert len(config.go_aways) == 1
        await peer.say(bytes(9))  # a part of a body of no request
        await peer.until_closed()
        await until(lambda: not len(config.go_aways))
    async with connected(Slow(), config := served()) as peer:
        await peer.request(1, ends=True)
        await peer.until(StreamEnded, 1)
        await peer.close()
        await until(lambda: not len(config.go_aways))


@pytest.mark.usefixtures("jumping")
async def test_an_overlong_frame_is_refused_by_its_head() -> None:
    """Invariant 7: nobody was admitted yet; h2 would keep up to 16 MiB of it for each connection that says so."""
    async with connected() as peer:
        await peer.request(1, ends=True)
        await peer.until(StreamEnded, 1)
        await peer.say((2**24 - 1).to_bytes(3) + bytes(6))
        ended = await peer.until_closed()
    assert [event.error_code for event in ended if isinstance(event, ConnectionTerminated)] == [
        ErrorCodes.FRAME_SIZE_ERROR
    ]


@pytest.mark.rule("T40")
@pytest.mark.parametrize("times", [1, 2])
async def test_a_client_that_makes_no_more_requests_gets_the_answer_to_its_last(times: int) -> None:
    """Node's and Go's clients say so when they close a connection, and then wait for what still runs."""
    slow = Slow()
    async with connected(slow) as peer:
        frames = Frames(peer)
        await peer.request(1, {**HEAD, b":path": b"/slow"}.items(), ends=True)
        await peer.say(GoAwayFrame(0, last_stream_id=0).serialize() * times)
        await peer.request(3, ends=True)  # it was under way
        await frames.until(DataFrame, 3)
        slow.may_end.set()
        await frames.until(DataFrame, 1)


@pytest.mark.rule("T40")
@pytest.mark.usefixtures("jumping")
async def test_a_client_that_gives_up_with_an_error_has_left() -> None:
    config = served()
    async with connected(Slow(), config) as peer:
        await peer.request(1, {**HEAD, b":path": b"/slow"}.items(), ends=True)
        await peer.say(GoAwayFrame(0, last_stream_id=0, error_code=ErrorCodes.INTERNAL_ERROR).serialize())
        await peer.until_closed()
        await until(lambda: not len(config.go_aways))


@asynccontextmanager
async def two_clients(application: Any, config: EdgeConfig) -> AsyncIterator[tuple[Peer, Peer]]:
    """Connect two clients of HTTP/2 to a server."""
    async with (
        connected(application, config) as first,
        await anyio.connect_tcp(*config.listening.getsockname()[:2]) as stream,
    ):
        second = Peer(stream)
        second.http.initiate_connection()
        await second.send()
        yield first, second


@pytest.mark.rule("T42", "T28")
async def test_all_connections_together_have_so_many_requests() -> None:
    """A connection has hundreds, which cost memory: as many times the connections that there may be were no bound."""
    config, slow = served(), Slow()
    config.multiplexed_requests = requests = MultiplexedRequests(3, lambda: False)
    async with two_clients(slow, config) as (first, second):
        for stream in (1, 3):
            await first.request(stream, {**HEAD, b":path": b"/slow"}.items(), ends=True)
        await second.request(1, {**HEAD, b":path": b"/slow"}.items(), ends=True)
        await until(lambda: requests.count == 3)
        await second.request(3, ends=True)
        refused = await second.until(StreamReset, 3)
        assert refused.error_code == ErrorCodes.REFUSED_STREAM
        slow.may_end.set()
        await second.until(StreamEnded, 1)
        await until(lambda: requests.count == 0)
        await second.request(5, ends=True)
        await second.until(StreamEnded, 5)


@pytest.mark.rule("T42")
async def test_requests_of_a_client_that_has_left_count_no_more() -> None:
    config = served()
    requests = config.multiplexed_requests
    async with two_clients(Slow(), config) as (_, second):
        for stream in range(1, 40, 2):
            await second.request(stream, {**HEAD, b":path": b"/slow"}.items(), ends=True)
        await until(lambda: requests.count == 20)
        await second.close()
        await until(lambda: requests.count == 0)


@pytest.mark.rule("T42")
def test_the_more_connections_have_much_to_read_the_shorter_is_the_turn_of_each() -> None:
    """A hundred clients with hundreds of requests each held up everybody else for seconds."""
    frames = FrameReader(Budget(), 65_536)
    frames.add_data(PREFACE + b"".join(frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * n) for n in range(100)))
    frames.begin_turn()
    alone = len(list(frames))
    frames.begin_turn(100)
    assert (alone, len(list(frames))) == (16, 1)
