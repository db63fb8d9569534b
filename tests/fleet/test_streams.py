"""Listen streams through real processes and sockets: several edges, slow readers, operators, and what dies."""

from __future__ import annotations

import hashlib
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import nats
import pytest
from mcp import Client
from nats.aio.client import Client as Nats

from mcpfleet.cli.endpoint_client import EndpointClient
from mcpfleet.cli.operate import publish
from mcpfleet.cli.watch import Watch, WatchSelection
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.testing.fleet import Fleet
from tests.contract.fleet.listener import ACK, END, KEY, UPDATED, Listener, changed, listening
from tests.fleet.library_app import LONG
from tests.kit.crowd import crowd
from tests.kit.waiting import until

APP = Path(__file__).with_name("library_app.py")
BOOK = "library://books/1"
STRANGE = "other://1"
"""No pool serves it."""


def plain() -> httpx2.AsyncClient:
    """A client of HTTP alone, with as many connections as it likes."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx2.AsyncClient(timeout=10, verify=False, limits=limits)


@asynccontextmanager
async def at_every_edge(fleet: Fleet, count: int, **notifications: Any) -> AsyncIterator[list[Listener]]:
    """So many streams at each edge."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(plain())
        found: list[Listener] = []
        for url in fleet.urls:
            found += await stack.enter_async_context(listening(http, url, count, **notifications))
        yield found


@pytest.mark.rule("S6", "S8", "S9", "M58")
async def test_a_change_reaches_every_stream_of_every_edge_once() -> None:
    """By a call through one edge, by a worker outside of any call, and by an operator; lists at run time, too.

    Each message has its own stream's id, of the same type, where others have equal ones.
    """
    async with (
        Fleet(APP, edges=3) as fleet,
        at_every_edge(fleet, 60, resourceSubscriptions=[BOOK], toolsListChanged=True) as streams,
        Client(fleet.urls[1]) as client,
    ):
        assert len(streams) == 180
        await client.call_tool("rename", {"book": 1, "title": "Sanditon"})
        await until(lambda: all(stream.kinds() == [ACK, UPDATED] for stream in streams))
        await client.call_tool("come_in_later", {"book": 1})
        await until(lambda: all(stream.kinds() == [ACK, UPDATED, UPDATED] for stream in streams))
        assert await publish(fleet.nats_settings("operator"), "mcp", [BOOK]) == 0
        await until(lambda: all(stream.kinds() == [ACK] + [UPDATED] * 3 for stream in streams))
        await client.call_tool("grow", {"name": "added"})
        await until(lambda: all(stream.kinds()[4:] == [changed("tools")] for stream in streams))
        await client.call_tool("shrink", {"name": "added"})
        await until(lambda: all(stream.kinds()[4:] == [changed("tools")] * 2 for stream in streams))
        assert {stream.uris()[0] for stream in streams} == {BOOK}
        for stream in streams:
            identifiers = [message["params"]["_meta"][KEY] for message in stream.messages]
            assert {(type(each), each) for each in identifiers} == {(type(stream.id), stream.id)}
        assert {type(stream.id) for stream in streams} == {int, str}


@pytest.mark.rule("S5", "S6")
async def test_a_program_of_any_language_publishes_as_the_operators_page_says() -> None:
    """As an operator and as a pool, by NATS's own protocol; a pool is believed for what it serves alone."""
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    async with (
        Fleet(APP, edges=2) as fleet,
        at_every_edge(fleet, 3, resourceSubscriptions=[BOOK, STRANGE]) as streams,
    ):
        page = page.replace("pool-library", f"pool-{fleet.pool}").replace(".library.", f".{fleet.pool}.")
        for user in ("operator", f"pool-{fleet.pool}"):
            before = len(streams[0].messages)
            [subject] = re.findall(rf'nats --user {user} .* pub "(.*)" "\$uri"', page)
            async with raw_nats(fleet.nats_settings(user), user) as client:
                for uri in (STRANGE, BOOK):
                    key = hashlib.sha256(uri.encode()).hexdigest()[:32]
                    await client.publish(subject.replace("$key", key), uri.encode())
                await client.flush()
            await until(lambda before=before: all(len(stream.messages) > before for stream in streams))  # type: ignore[misc]  # mypy infers no lambda with a default
        assert {tuple(stream.kinds()) for stream in streams} == {(ACK, UPDATED, UPDATED)}
        assert {tuple(stream.uris()) for stream in streams} == {(BOOK, BOOK)}


@asynccontextmanager
async def raw_nats(settings: ProcessSettings, user: str) -> AsyncIterator[Nats]:
    """NATS's own client, as a user of the fleet's."""
    password = settings.nats_password.get_secret_value() if settings.nats_password else ""
    client = await nats.connect(settings.nats_url, user=user, password=password, allow_reconnect=False)
    try:
        yield client
    finally:
        await client.close()


async def test_the_official_python_client_listens_at_either_edge_to_a_graceful_end() -> None:
    """D1, M58: over sockets; one edge after the other leaves, and the client of the other hears what comes next."""
    async with Fleet(APP, edges=2) as fleet, anyio.create_task_group() as tasks:
        heard: list[list[Any]] = [[], []]
        for url, events in zip(fleet.urls, heard, strict=True):
            tasks.start_soon(_listen, url, events)
        await until(lambda: all(heard))
        assert await publish(fleet.nats_settings("operator"), "mcp", [BOOK]) == 0
        await until(lambda: [len(events) for events in heard] == [2, 2])
        fleet.edges[0].signal(signal.SIGTERM)
        await until(lambda: [len(events) for events in heard] == [3, 2])
        assert await publish(fleet.nats_settings("operator"), "mcp", [BOOK]) == 0
        await until(lambda: [len(events) for events in heard] == [3, 3])
        fleet.edges[1].signal(signal.SIGTERM)
        await until(lambda: [len(events) for events in heard] == [3, 4])
    assert heard == [[[BOOK], BOOK, "over"], [[BOOK], BOOK, BOOK, "over"]]


async def _listen(url: str, events: list[Any]) -> None:
    """Keep what a client hears to its end; an end that is not clean raises an error."""
    async with Client(url) as client, client.listen(resource_subscriptions=[BOOK]) as subscription:
        events.append(subscription.honored.resource_subscriptions)
        async for event in subscription:
            events.append(getattr(event, "uri", None))  # noqa: PERF401  # it is looked at while more comes
        events.append("over")


@pytest.mark.rule("S17")
async def test_a_draining_edge_ends_its_streams_and_the_others_go_on() -> None:
    async with (
        Fleet(APP, edges=2) as fleet,
        at_every_edge(fleet, 10, resourceSubscriptions=[BOOK]) as streams,
        Client(fleet.urls[1]) as client,
    ):
        fleet.edges[0].signal(signal.SIGTERM)
        await until(lambda: all(stream.is_over for stream in streams[:10]))
        assert {tuple(stream.kinds()) for stream in streams[:10]} == {(ACK, END)}
        await client.call_tool("rename", {"book": 1, "title": "Lady Susan"})
        await until(lambda: all(stream.kinds() == [ACK, UPDATED] for stream in streams[10:]))


@pytest.mark.rule("S14")
async def test_a_reader_that_stops_is_closed_and_slows_nobody() -> None:
    """N5: within the write timeout from when it was sent more than it has room for, whatever still comes for it."""
    async with (
        Fleet(APP, environment={"MCPFLEET_WRITE_TIMEOUT": "2", "MCPFLEET_STREAM_PENDING": "256"}) as fleet,
        crowd(fleet.urls[0], [None] * 10, room=4096, resourceSubscriptions=LONG) as stalled,
        at_every_edge(fleet, 1, resourceSubscriptions=LONG) as [reader],
        Client(fleet.urls[0]) as client,
    ):
        for stream in stalled:
            stream.stall()
        began = time.monotonic()
        while fleet.logs().count("client stalled") < len(stalled):
            before, asked = len(reader.messages), time.monotonic()
            await client.call_tool("flood", {})
            await until(lambda before=before: len(reader.messages) >= before + len(LONG))  # type: ignore[misc]  # mypy infers no lambda with a default
            assert time.monotonic() - asked < 2, "the neighbour is told meanwhile"
        assert 2 <= time.monotonic() - began < 4
        for stream in stalled:
            stream.go_on()
        await until(lambda: all(stream.is_closed for stream in stalled))
        assert END not in {kind for stream in stalled for kind in stream.kinds}
        assert not reader.is_over


async def test_mcpfleet_watch_shows_what_changes_and_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    """S19: a client listens first and then reads again, so that it sees what changed while nobody told it."""
    heard: list[str] = []

    def printed() -> str:
        heard.append(capsys.readouterr().out)
        return "".join(heard)

    async with Fleet(APP) as fleet, anyio.create_task_group() as tasks:
        wish = WatchSelection(tools=True, uris=[BOOK])
        tasks.start_soon(Watch(EndpointClient(fleet.urls[0]), wish).run)
        await until(lambda: f"{BOOK}: Emma" in printed())
        assert "tools: 7: bind, come_in_later, flood, grow, read_aloud, rename, shrink" in printed()
        async with Client(fleet.urls[0]) as client:
            await client.call_tool("rename", {"book": 1, "title": "Sanditon"})
            await until(lambda: f"{BOOK}: Sanditon" in printed())
            await client.call_tool("grow", {"name": "added"})
            await until(lambda: "tools: 8: added, bind, come_in_later, flood" in printed())
        tasks.cancel_scope.cancel()
