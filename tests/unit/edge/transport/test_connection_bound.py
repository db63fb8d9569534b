"""Connections are bounded: those beyond wait to be accepted, and unused ones make room."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio.abc import SocketStream
from h2.events import ConnectionTerminated, ResponseReceived
from h2.settings import SettingCodes
from structlog.testing import capture_logs

from mcpfleet.edge.transport.hypercorn.lifetimes import Deadlines, Waits
from mcpfleet.edge.transport.hypercorn.server import EdgeConfig
from mcpfleet.process.host import RESERVE, connections_within, raise_limit
from mcpfleet.telemetry.instruments import ConnectionInstruments
from mcpfleet.telemetry.metrics import Metrics, usage
from tests.kit.http2 import HEAD, Peer
from tests.kit.waiting import until
from tests.unit.edge.http_server import StubApplication, connect, serving

pytestmark = pytest.mark.usefixtures("jumping")

REQUEST: Final = b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n"
SLOW: Final = b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n"


class Counts:
    """The figures about connections."""

    def __init__(self) -> None:
        self.instruments = ConnectionInstruments(Metrics())

    @property
    def open(self) -> float:
        """Connections that are open."""
        return self.instruments.open.read().points[0].value

    @property
    def waits(self) -> float:
        """Times that clients had to wait."""
        return self.instruments.waits.read().points[0].value


async def ask(stream: SocketStream, request: bytes = REQUEST) -> bytes:
    """Send a request, and receive its answer."""
    await stream.send(request)
    return await stream.receive()


@pytest.mark.rule("T24")
async def test_clients_beyond_the_bound_wait_until_a_connection_ends() -> None:
    """N27: nothing is refused, and a metric says that they wait."""
    application, counts = StubApplication(timeout=60.0), Counts()
    async with (
        serving(application, instruments=counts.instruments, max_connections=3) as config,
        AsyncExitStack() as stack,
        anyio.create_task_group() as tasks,
    ):
        served = [await stack.enter_async_context(await connect(config)) for _ in range(3)]
        for stream in served:
            await stream.send(SLOW)
        await until(lambda: len(application.begun) == 3)
        late = await stack.enter_async_context(await connect(config))
        answers: list[bytes] = []

        async def wait_for_answer() -> None:
            answers.append(await ask(late))

        tasks.start_soon(wait_for_answer)
        await until(lambda: counts.waits)
        assert (len(application.begun), counts.open, answers) == (3, 3, [])
        await served[0].aclose()
        await until(lambda: answers)
        assert len(application.begun) == 4
        application.may_answer.set()
        assert (await served[1].receive()).endswith(b"{}"), "who was served is served on"


@pytest.mark.rule("T24")
async def test_clients_that_reset_at_once_leave_no_line_in_the_log() -> None:
    """A stranger could write a traceback for each connection."""
    counts = Counts()
    with capture_logs() as lines:
        async with serving(StubApplication(), instruments=counts.instruments) as config:
            for _ in range(20):  # nothing is awaited meanwhile, so all are accepted after their reset
                with socket.create_connection(config.listening.getsockname()[:2]) as client:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            async with await connect(config) as stream:
                assert (await ask(stream)).endswith(b"{}")
            await until(lambda: counts.open == 0)
    assert lines == []


@pytest.mark.rule("T24")
@pytest.mark.parametrize("is_known", [True, False], ids=["after a request", "without one"])
async def test_the_longest_unused_connection_makes_room(*, is_known: bool) -> None:
    """One that has had a request, or one that never had any."""
    async with serving(StubApplication(timeout=60.0), max_connections=2) as config, AsyncExitStack() as stack:
        config.waits = Waits(keep_alive=60, head=60, spared_idle=0, spared_head=0)
        oldest, newer = [await stack.enter_async_context(await connect(config)) for _ in range(2)]
        for stream in (oldest, newer) if is_known else ():
            await ask(stream)
        late = await stack.enter_async_context(await connect(config))
        assert (await ask(late)).endswith(b"{}")
        with pytest.raises(anyio.EndOfStream):
            await oldest.receive()
        assert (await ask(newer)).endswith(b"{}")


@pytest.mark.rule("T24")
async def test_a_client_that_has_had_its_answer_makes_room() -> None:
    """T41: it may still send what nobody reads, but not while others wait."""
    application = StubApplication(timeout=60.0)
    async with serving(application, max_connections=1) as config, AsyncExitStack() as stack:
        config.waits = Waits(keep_alive=60, head=60, spared_idle=3600, spared_head=0)
        config.waits.answered = Deadlines(3600, lambda connection: connection.hang_up())
        early = await stack.enter_async_context(await connect(config))
        unread = REQUEST.replace(b"/x", b"/early").replace(b"host", b"content-length: 10\r\nhost")
        assert b"content-length: 2" in await ask(early, unread)
        late = await stack.enter_async_context(await connect(config))
        assert (await ask(late)).endswith(b"{}")


@pytest.mark.rule("T24")
async def test_a_body_that_does_not_arrive_makes_room() -> None:
    """It needs no token to hold a connection by a part of a body."""
    async with serving(StubApplication(timeout=60.0), max_connections=2) as config, AsyncExitStack() as stack:
        config.waits = Waits(keep_alive=60, head=60, spared_idle=0, spared_head=0)
        slow, whole = [await stack.enter_async_context(await connect(config)) for _ in range(2)]
        await slow.send(SLOW.replace(b"host", b"content-length: 10\r\nhost") + b"x")
        await whole.send(SLOW.replace(b"host", b"content-length: 1\r\nhost"))
        await anyio.wait_all_tasks_blocked()
        await whole.send(b"x")
        late = await stack.enter_async_context(await connect(config))
        assert (await ask(late)).endswith(b"{}")
        with pytest.raises(anyio.EndOfStream):
            await slow.receive()


@pytest.mark.rule("T24")
@pytest.mark.parametrize("is_read", [True, False], ids=["a body is missing", "nothing may be sent"])
async def test_requests_of_http2_that_wait_for_their_client_make_room(*, is_read: bool) -> None:
    """It needs no token to hold a connection by a part of a body, or by a window of nothing for the answer."""
    application = StubApplication(timeout=60.0)
    async with serving(application, max_connections=2) as config, AsyncExitStack() as stack:
        config.waits = Waits(keep_alive=60, head=60, spared_idle=0, spared_head=60)
        slow, busy = [Peer(await stack.enter_async_context(await connect(config))) for _ in range(2)]
        if not is_read:
            slow.http.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = 0
            slow.http.local_settings.acknowledge()
        for peer in (slow, busy):
            peer.http.initiate_connection()
        await busy.request(1, ends=False)
        await busy.request(3, {**HEAD, b":path": b"/slow"}.items(), ends=True)
        await until(lambda: len(application.begun) == 2)
        await slow.request(1, ends=not is_read)
        if is_read:
            await until(lambda: len(application.begun) == 3)
        else:
            await slow.until(ResponseReceived, 1)
        late = await stack.enter_async_context(await connect(config))
        with anyio.fail_after(10):
            assert (await ask(late)).endswith(b"{}")
        events = await slow.until_closed()
        assert [event for event in events if isinstance(event, ConnectionTerminated)]
        application.may_answer.set()
        await busy.until(ResponseReceived, 3)


@pytest.mark.rule("T24")
async def test_a_known_client_is_kept_while_strangers_hold_connections_without_asking() -> None:
    async with serving(StubApplication(timeout=60.0), max_connections=3) as config, AsyncExitStack() as stack:
        config.waits = Waits(keep_alive=60, head=60, spared_idle=0.1, spared_head=0.1)
        known = await stack.enter_async_context(await connect(config))
        await ask(known)
        for _ in range(20):
            await stack.enter_async_context(await connect(config))
        late = await stack.enter_async_context(await connect(config))
        assert (await ask(late)).endswith(b"{}")
        assert (await ask(known)).endswith(b"{}")


@pytest.mark.rule("T24")
async def test_a_connection_with_a_request_is_never_closed_for_another() -> None:
    application, counts = StubApplication(timeout=60.0), Counts()
    async with (
        serving(application, instruments=counts.instruments, max_connections=1) as config,
        await connect(config) as busy,
    ):
        config.waits = Waits(keep_alive=60, head=60, spared_idle=0, spared_head=0)
        await busy.send(SLOW)
        await until(lambda: application.begun)
        async with await connect(config):
            await until(lambda: counts.waits >= 2)
            application.may_answer.set()
            assert (await busy.receive()).endswith(b"{}")


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Leave this process without a free descriptor for the length of a block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, soft), hard))
        with suppress(OSError):
            while True:
                taken.append(Path("/dev/null").open("rb"))  # noqa: SIM115  # all are closed below
        yield
    finally:
        for each in taken:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.rule("T24")
async def test_a_server_without_descriptors_accepts_as_soon_as_there_are_some() -> None:
    """The event loop would close the socket that listens, without a word."""
    counts = Counts()
    async with (
        serving(StubApplication(timeout=60.0), instruments=counts.instruments) as config,
        await anyio.connect_tcp(*address(config)) as first,
    ):
        await ask(first)
        with anyio.fail_after(10):
            raw = await waiting_client(config, counts)
        async with await anyio.connect_tcp(*address(config)) as stream:
            assert (await ask(stream)).endswith(b"{}")
        assert (await ask(first)).endswith(b"{}")
        raw.close()


def address(config: EdgeConfig) -> tuple[str, int]:
    """Where clients connect."""
    host, port = config.listening.getsockname()[:2]
    return str(host), int(port)


async def waiting_client(config: EdgeConfig, counts: Counts) -> Any:
    """Connect while the server has no descriptor, until it has noticed."""
    import socket  # made before the descriptors are gone

    client = socket.socket()
    with no_descriptors():
        client.connect(address(config))
        await until(lambda: counts.waits)
    return client


@pytest.mark.rule("T24")
def test_figures_are_told_without_a_free_descriptor() -> None:
    """Counting descriptors needs one; whoever reads the others still gets them."""
    with no_descriptors():
        names = {family.name for family in usage()}
    assert {"process.cpu", "process.max_fds"} <= names
    assert "process.open_fds" in {family.name for family in usage()}


@pytest.mark.rule("N27")
@pytest.mark.parametrize(
    ("limit", "connections"),
    [(20_000, 16_384), (1024, 1024 - RESERVE), (256, 128), (100, 50), (2, 1)],
)
def test_connections_leave_a_reserve_below_the_limit(limit: int, connections: int) -> None:
    """N27: for NATS, the store, the admin port and files; the soft limit is the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, hard), hard))
        expected = connections if limit <= hard else min(16_384, hard - RESERVE)
        assert connections_within(16_384) == expected
        raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
