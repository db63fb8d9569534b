"""The page on the admin port, over real sockets, of processes that have no link to NATS."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from structlog.testing import capture_logs

from mcpfleet.bus.service import bus_of, watch_link
from mcpfleet.console.feed import MOST_WATCHERS
from mcpfleet.console.page import is_ours
from mcpfleet.console.publish import publish_stats, serve_console
from mcpfleet.contracts.stats import Role
from mcpfleet.process import admin
from mcpfleet.process.service import Pages, Process
from mcpfleet.process.settings import ProcessSettings

pytestmark = pytest.mark.usefixtures("jumping")

ON = {"console": True, "nats_password": "hunter2"}


@asynccontextmanager
async def served(*roles: Role, logged: list[Any] | None = None, **settings: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the admin port of a process with these services; their lines are in `logged` at the end."""
    listening = admin.listen("127.0.0.1:0")
    url, pages = admin.url(listening), Pages(admin.url(listening))
    processes = [Process(role.value, ProcessSettings(**{**ON, **settings}), pages=pages) for role in roles]
    ended = anyio.Event()
    with capture_logs() as lines:
        async with anyio.create_task_group() as port:
            port.start_soon(admin.serve, listening, processes, ended.wait)
            async with anyio.create_task_group() as tasks:
                for role, process in zip(roles, processes, strict=True):
                    bus = bus_of(process, role.value)
                    watch_link(process, bus)
                    tasks.start_soon(serve_console, process, bus, role)
                async with httpx2.AsyncClient(base_url=url) as client:
                    yield client
                    tasks.cancel_scope.cancel()
                    ended.set()
    if logged is not None:
        logged += lines
    told = [line["url"] for line in lines if line["event"] == "console served"]
    assert told == ([f"{url}/console"] if processes[0].settings.console else [])


async def first_event(client: httpx2.AsyncClient, query: str = "", holds: str = "nodes") -> dict[str, Any]:
    """The first picture of a stream in which something is there."""
    async with client.stream("GET", f"/console/events{query}") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        async for line in answer.aiter_lines():
            if line.startswith("data: ") and (seen := json.loads(line.removeprefix("data: ")))[holds]:
                found: dict[str, Any] = seen
                return found
    raise AssertionError("the stream ended")


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/console", "text/html; charset=utf-8"),
        ("/console/console.css", "text/css"),
        ("/console/console.js", "text/javascript"),
    ],
)
async def test_the_page_needs_no_other_host_and_lets_no_other_in(path: str, media_type: str) -> None:
    async with served(Role.EDGE) as client:
        answer, head = await client.get(path), await client.head(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert re.findall(r"(?:https?:)?//[a-z]", answer.text) == []
        assert (head.status_code, head.content) == (200, b"")


async def test_a_process_without_nats_shows_itself_and_what_it_lacks_and_no_secret() -> None:
    async with served(Role.TASKS) as client:
        seen = await first_event(client)
        assert [(node["role"], node["state"]) for node in seen["nodes"]] == [("tasks", "not ready")]
        assert [each["what"] for each in seen["stuck"]][-1] == "not ready: nats: no link to NATS (MCPFLEET_NATS_URL)"
        assert "hunter2" not in json.dumps(seen)


async def test_a_process_and_a_tool_have_streams_of_their_own() -> None:
    """Each view has an address, and a view of what nobody has heard says so."""
    async with served(Role.TASKS) as client:
        [node] = (await first_event(client))["nodes"]
        seen = await first_event(client, f"?role=tasks&process={node['process']}", "found")
        assert seen["found"]["who"] == f"tasks {node['process'][:4]}"
        assert [each["what"] for each in seen["found"]["stuck"]] == [
            "not ready: nats: no link to NATS (MCPFLEET_NATS_URL)"
        ]
        assert (await first_event(client, "?tool=%3Cscript%3E", "reports"))["found"] is None
        assert (await client.get("/console?tool=search")).text == (await client.get("/console")).text


async def test_services_that_share_a_process_have_one_page() -> None:
    """It is the first one's; its address is logged once."""
    async with served(Role.CATALOG, Role.TASKS) as client:
        seen = await first_event(client)
        assert [node["role"] for node in seen["nodes"]] == ["catalog"]


async def test_there_is_nothing_where_it_is_off() -> None:
    async with served(Role.EDGE, console=False) as client:
        assert (await client.get("/console")).status_code == 404
        assert (await client.get("/console/events")).status_code == 404


async def test_a_worker_has_no_page() -> None:
    process = Process("worker", ProcessSettings(console=True))
    with anyio.move_on_after(0.1):
        await publish_stats(process, bus_of(process, "pool-library"), "library")
    assert list(process.pages) == []


async def test_nothing_can_be_sent_to_the_page() -> None:
    async with served(Role.EDGE) as client:
        assert (await client.post("/console")).status_code == 405


async def test_a_foreign_name_that_leads_here_reads_nothing() -> None:
    """A web page could have its own name resolve to the admin port, and read as if it were its own."""
    async with served(Role.EDGE, console_hosts=("Console.Example",)) as client:
        for path in ("/console", "/console/events"):
            refused = await client.get(path, headers={"host": "evil.example"})
            assert (refused.status_code, refused.text) == (403, "MCPFLEET_CONSOLE_HOSTS does not name this host\n")
        assert (await client.get("/console", headers={"host": "console.example:9090"})).status_code == 200


async def test_names_of_the_console_are_read_as_public_hosts_are() -> None:
    """With a port or without, in any spelling; a name that no browser can send is told."""
    names = ("Console.Example.", "other.example:9090", "https://mine.example", "*.example")
    lines: list[Any] = []
    async with served(Role.EDGE, logged=lines, console_hosts=names) as client:
        found = {
            host: (await client.get("/console", headers={"host": host})).status_code
            for host in ("console.example:1", "other.example:9090", "other.example:1", "mine.example")
        }
    assert list(found.values()) == [200, 200, 403, 403]
    [told] = [line for line in lines if line["event"] == "console hosts match nothing"]
    assert told["hosts"] == ["'https://mine.example'", "'*.example'"]
    assert told["want"].startswith("MCPFLEET_CONSOLE_HOSTS takes a host, or host:port")


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("localhost", True),
        ("LOCALHOST:9090", True),
        ("127.0.0.1:1", True),
        ("10.1.2.3", True),
        ("[::1]:80", True),
        ("[::1]", True),
        ("mine.example:80", True),
        ("", False),
        ("localhost.evil.example", False),
        ("evil.example", False),
        ("[evil]", False),
        ("[::1", False),
    ],
)
def test_which_hosts_are_ours(host: str, ours: bool) -> None:
    assert is_ours(host, ("mine.example",)) is ours


async def test_an_open_page_does_not_hold_the_end_up() -> None:
    async with AsyncExitStack() as stack:
        with anyio.fail_after(5):
            async with served(Role.EDGE) as client:
                answer = await stack.enter_async_context(client.stream("GET", "/console/events"))
                assert answer.status_code == 200


async def test_so_many_pages_are_open_at_once_and_one_that_is_closed_makes_room() -> None:
    async with served(Role.EDGE) as client:
        async with AsyncExitStack() as stack:
            for _ in range(MOST_WATCHERS):
                answer = await stack.enter_async_context(client.stream("GET", "/console/events"))
                assert answer.status_code == 200
            refused = await client.get("/console/events")
            assert (refused.status_code, refused.text) == (503, "too many consoles are open, or the process ends\n")
        with anyio.fail_after(10):
            while True:
                async with client.stream("GET", "/console/events") as answer:
                    if answer.status_code == 200:
                        return
                await anyio.sleep(0.05)
