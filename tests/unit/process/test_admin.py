"""The admin port, over real sockets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import httpx2
import pytest
from structlog.testing import capture_logs

from mcpfleet.process import admin
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.service import Process
from mcpfleet.process.settings import ProcessSettings


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


@pytest.mark.parametrize("said", [b"", b"GET /livez HT", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"])
async def test_t24_the_admin_port_answers_probes_however_many_connections_strangers_hold(said: bytes) -> None:
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
