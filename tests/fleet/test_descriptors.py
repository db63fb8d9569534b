"""An edge with few descriptors and many strangers: it lives, serves whom it knows, and finds NATS again."""

from __future__ import annotations

import json
import resource
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest

from mcpfleet.cli.child import Child
from mcpfleet.testing.fleet import Fleet
from tests.kit.raw import Connection, connected
from tests.kit.waiting import until

APP = Path(__file__).with_name("library_app.py")
LIMIT = 256
ROOM = 128
"""Connections that an edge takes at this limit."""
STRANGERS = 400


async def with_few_descriptors(fleet: Fleet, edge: Child) -> None:
    """Start an edge again that may have few descriptors, and no more by its own doing."""
    edge._command = ["sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh", *edge._command]
    await fleet.restart(edge)


def events(child: Child) -> list[str]:
    assert child.log is not None
    return [json.loads(line)["event"] for line in child.log.read_text().splitlines() if line.startswith("{")]


def admin_url(child: Child) -> str:
    """Where a process's admin port is, as it has logged it last."""
    assert child.log is not None
    lines = [json.loads(line) for line in child.log.read_text().splitlines() if '"admin port opened"' in line]
    return str(lines[-1]["url"])


async def figure(child: Child, name: str) -> float:
    """One of a process's figures, from its admin port, over a connection of its own."""
    async with httpx2.AsyncClient(timeout=10) as http:
        text = (await http.get(f"{admin_url(child)}/metrics")).text
    [value] = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(name)]
    return float(value)


def connect_all(stack: ExitStack, url: str, number: int) -> None:
    """Connect strangers that say nothing."""
    parts = urlsplit(url)
    for _ in range(number):
        stranger = stack.enter_context(socket.socket())
        stranger.setblocking(False)
        stranger.connect_ex((parts.hostname, parts.port))


async def read_aloud(connection: Connection) -> int:
    """Call a tool, and return the answer's status."""
    await connection.send("tools/call", {"name": "read_aloud", "arguments": {"seconds": 0}})
    return (await connection.answer()).status


@pytest.mark.rule("T24")
async def test_an_edge_without_descriptors_for_strangers_lives_and_serves() -> None:
    """Calls, figures, and a new link to NATS, while more strangers are connected than there is room for."""
    async with Fleet(APP, environment={"MCPFLEET_CONSOLE": "true", "MCPFLEET_HEAD_TIMEOUT": "3600"}) as fleet:
        [edge] = fleet.edges
        await with_few_descriptors(fleet, edge)
        url = edge.url or ""
        with anyio.fail_after(60), ExitStack() as strangers:
            async with connected(url) as known:
                assert await read_aloud(known) == 200
                connect_all(strangers, url, STRANGERS)
                async with connected(url) as late:
                    assert await read_aloud(late) == 200, "strangers without a request make room"
                assert await read_aloud(known) == 200
                assert await figure(edge, "mcpfleet_edge_connections_open") <= ROOM
                assert await figure(edge, "mcpfleet_edge_connections_waits_total") > 0
                assert await figure(edge, "process_max_fds") == LIMIT
                assert await figure(edge, "process_open_fds") > ROOM
                await fleet.restart_nats()
                await until(lambda: events(edge).count("link up") == 3, within=20)
                await until(lambda: events(fleet.workers[0]).count("link up") == 2, within=20)
                assert await read_aloud(known) == 200
            strangers.close()
            async with connected(url) as late:
                assert await read_aloud(late) == 200
        assert edge.is_running
        assert edge.log is not None
        assert "Too many open files" not in edge.log.read_text()
        assert "report failed" not in events(edge)
        assert len(events(edge)) < 100


@pytest.mark.rule("T24")
@pytest.mark.skipif(sys.platform != "linux", reason="no other system lets a limit of another process be set")
async def test_no_process_ends_for_want_of_descriptors() -> None:
    """Edge, worker and services run on without any, say figures, and find NATS when there are some again."""
    async with Fleet(APP, environment={"MCPFLEET_CONSOLE": "true"}) as fleet, connected(fleet.urls[0]) as known:
        children = [*fleet.edges, *fleet.workers, fleet.services]
        assert await read_aloud(known) == 200
        limits = {child: resource.prlimit(child.pid, resource.RLIMIT_NOFILE) for child in children}
        for child, (_, hard) in limits.items():
            resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (3, hard))
        with ExitStack() as scrapes:
            for child in children:
                connect_all(scrapes, admin_url(child), 1)
            await until(lambda: all("connection not accepted" in events(child) for child in children))
        assert await read_aloud(known) == 200
        await fleet.restart_nats()
        await until(lambda: all("waiting for NATS" in events(child) for child in children), within=20)
        for child, limit in limits.items():
            resource.prlimit(child.pid, resource.RLIMIT_NOFILE, limit)
        ups = [2, 2, 8]  # the services have a link each
        await until(lambda: [events(child).count("link up") for child in children] == ups, within=20)
        for child in children:
            assert await figure(child, "process_open_fds") > 3
            assert "report failed" not in events(child)
