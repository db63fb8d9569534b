"""The admin port, over real sockets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import httpx2
import pytest
from hypercorn.typing import ASGISendCallable
from structlog.testing import capture_logs

from mcpfleet.process import admin, admin_connection
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.service import Pages, Process
from mcpfleet.process.settings import ProcessSettings

pytestmark = pytest.mark.usefixtures("jumping")


@contextlib.asynccontextmanager
async def served(*processes: Process[ProcessSettings]) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an admin port that serves these."""
    listening = admin.listen("127.0.0.1:0")
    url = admin.url(listening)
    ended = asyncio.Event()
    with capture_logs():
        async with asyncio.TaskGroup() as group:
            group.create_task(admin.serve(listening, processes, ended.wait))
            async with httpx2.AsyncClient(base_url=url) as client:
                yield client
                ended.set()


def process(name: str = "edge") -> Process[ProcessSettings]:
    return Process(name, ProcessSettings())


async def test_a_living_loop_says_so() -> None:
    """Alive is not ready: a process without NATS is not restarted for it."""
    async with served(process()) as client:
        answer = await client.get("/livez")
    assert (answer.status_code, answer.text) == (200, "ok\n")


async def test_readiness_names_each_condition() -> None:
    """An operator reads from the probe itself what is missing."""
    edge, catalog = process("edge"), process("catalog")
    async with served(edge, catalog) as client:
        edge.health.set("nats", True)
        catalog.health.set("store", False, "the database does not answer")
        unready = await client.get("/readyz")
        catalog.health.set("store", True)
        ready = await client.get("/readyz")
    assert unready.status_code == 503
    assert unready.json() == {
        "ready": False,
        "stopping": False,
        "services": {
            "edge": {"nats": {"ok": True, "why": ""}},
            "catalog": {"store": {"ok": False, "why": "the database does not answer"}},
        },
    }
    assert ready.status_code == 200
    assert ready.json()["ready"] is True


async def test_a_stopping_process_is_unready_and_says_why() -> None:
    """All conditions may hold, and yet nothing new should come."""
    edge = process()
    edge.health.set("nats", True)
    edge.stopping.set()
    async with served(edge) as client:
        answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["stopping"] is True


async def test_metrics_are_of_all_services() -> None:
    """One page for the process, each sample under its service's name."""
    edge, catalog = process("edge"), process("catalog")
    edge.telemetry.metrics.counter("mcpfleet.bus.reconnects", "Links.").add(2)
    catalog.telemetry.metrics.counter("mcpfleet.bus.reconnects", "Links.")
    async with served(edge, catalog) as client:
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'mcpfleet_bus_reconnects_total{service="edge"} 2' in answer.text
    assert 'mcpfleet_bus_reconnects_total{service="catalog"} 0' in answer.text


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/"])
async def test_no_answer_is_kept(path: str) -> None:
    """A cached probe would be yesterday's."""
    async with served(process()) as client:
        answer = await client.get(path)
    assert answer.headers.get_list("cache-control") == ["no-store"]
    assert "server" not in answer.headers


async def test_head_is_get_without_the_body() -> None:
    """Probes may use either."""
    async with served(process()) as client:
        answer = await client.head("/livez")
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "3")


async def test_what_is_not_there_and_what_is_not_allowed() -> None:
    """Nothing on this port changes anything."""
    async with served(process()) as client:
        missing = await client.get("/other")
        refused = await client.post("/livez")
    assert missing.status_code == 404
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


async def test_a_kept_connection_does_not_hold_the_end_up() -> None:
    """A scraper keeps its connection: the port closes all the same."""
    async with asyncio.timeout(5):
        async with served(process()) as client:
            await client.get("/livez")


def test_an_address_that_is_taken_is_named() -> None:
    """The operator reads the setting, the address and the reason."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match=f"MCPFLEET_ADMIN_BIND: cannot listen on {bind}: Address already"):
            admin.listen(bind)


def test_both_families_have_addresses() -> None:
    """An IPv6 address is written in brackets."""
    try:
        with admin.listen("[::1]:0") as listening:
            assert admin.url(listening).startswith("http://[::1]:")
    except ConfigurationError:
        pytest.skip("this machine has no IPv6")


@pytest.mark.rule("T24")
@pytest.mark.parametrize("said", [b"", b"GET /livez HT", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"])
async def test_the_admin_port_answers_probes_however_many_connections_strangers_hold(said: bytes) -> None:
    """A process whose probes fail is restarted, and its calls end with it."""
    async with served(process()) as client:
        host, port = client.base_url.host, client.base_url.port
        strangers = [await asyncio.open_connection(host, port) for _ in range(2 * admin.MOST_CONNECTIONS)]
        for _, writer in strangers:
            writer.write(said)
        async with asyncio.timeout(10):
            assert (await client.get("/livez")).status_code == 200
        for _, writer in strangers:
            writer.close()


@pytest.mark.rule("T24")
def test_a_burst_of_connections_makes_no_probe_wait_to_be_let_in() -> None:
    """Where the system has no place for it, it tries again after one second, three and seven."""
    with admin.listen("127.0.0.1:0") as listening, contextlib.ExitStack() as strangers:
        for _ in range(400):
            strangers.enter_context(socket.create_connection(listening.getsockname(), timeout=0.9))


H2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
GET = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n"
SPOKEN = {
    "HTTP/2": (H2 + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)) * 1000, b" 505 "),
    "an upgrade to HTTP/2": (
        GET + b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
        b" 200 ",
    ),
    "a WebSocket": (
        GET + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        b" 200 ",
    ),
    "many requests at once": ((GET + b"\r\n") * 1000, b" 200 "),
    "a body": (GET.replace(b"GET", b"POST") + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000, b" 405 "),
    "a body in chunks": (
        GET.replace(b"GET", b"POST") + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000,
        b" 405 ",
    ),
    "a long head": (GET + b"a: b\r\n" * 10_000, b" 431 "),
    "no HTTP": (b"\x16\x03\x01" + b"x" * 500 + b"\r\n\r\n", b" 400 "),
}


@pytest.mark.rule("T39")
@pytest.mark.parametrize("name", SPOKEN)
async def test_a_connection_to_the_admin_port_has_one_answer_whatever_is_sent(name: str) -> None:
    """Floods of HTTP/2, and of requests behind a request, held the loop of a service for seconds."""
    said, status = SPOKEN[name]
    async with served(process()) as client:
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        writer.write(said)
        async with asyncio.timeout(4):
            answer = await reader.read()
    assert status in answer[:14]
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"\r\nconnection: close\r\n" in answer.lower()
    writer.close()


@pytest.mark.rule("T39")
async def test_a_late_head_on_the_admin_port_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then keeps no connection."""
    monkeypatch.setattr(admin_connection, "_HEAD_WITHIN", 0.3)
    async with served(process()) as client:
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        writer.write(b"GET /livez HT")
        async with asyncio.timeout(4):
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()


@pytest.mark.rule("T39")
async def test_who_does_not_read_an_answer_of_the_admin_port_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that nobody reads keeps neither its text nor its connection."""
    monkeypatch.setattr(admin_connection, "_WRITE_WITHIN", 0.3)
    pages = Pages()

    async def long(_scope: object, _receive: object, send: ASGISendCallable) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 30_000_000, "more_body": False})
        ended.set()

    ended = asyncio.Event()
    pages.offer({"/long": long})
    async with served(Process("edge", ProcessSettings(), pages=pages)) as client:
        _, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port, limit=1024)
        writer.write(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(4):
            await ended.wait()
        writer.close()
