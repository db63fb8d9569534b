"""Many listen streams while permissions end, services are away, NATS is cut off, and an edge leaves."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from mcp import Client

from mcpfleet.cli.operate import publish
from mcpfleet.testing.fleet import Fleet
from tests.benchmarks.draining import draining
from tests.benchmarks.revoking import revoking
from tests.contract.fleet.listener import ACK, END, UPDATED, Listener, changed, listening
from tests.fleet.test_streams import APP, BOOK, at_every_edge, plain
from tests.kit.proxy import TcpProxy, proxied
from tests.kit.waiting import until

ANN = "secret-of-ann"
GUARDED = {
    "MCPFLEET_AUTHORIZATION": "static",
    "MCPFLEET_TOKENS": json.dumps({"tokens": [{"token": ANN, "subject": "ann", "audience": "mcp"}]}),
    "MCPFLEET_PARTITION_STREAMS": "1000",
}
OTHER = "library://books/2"


@asynccontextmanager
async def held(fleet: Fleet, token: str, count: int) -> AsyncIterator[list[Listener]]:
    """So many streams of one caller at each edge, that watch a book."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(plain())
        found: list[Listener] = []
        for url in fleet.urls:
            streams = listening(http, url, count, token=token, resourceSubscriptions=[BOOK])
            found += await stack.enter_async_context(streams)
        yield found


async def status(url: str, token: str | None = None) -> int:
    """The status of a listen, which is left at once."""
    async with plain() as http:
        stream = Listener()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.run, http, url, {"resourceSubscriptions": [BOOK]}, token)
            await until(lambda: stream.messages or stream.is_over)
            tasks.cancel_scope.cancel()
        return stream.status


@pytest.mark.timeout(180)
@pytest.mark.rule("S3", "S12", "S13")
async def test_a_revocation_ends_a_third_of_600_streams_within_a_second_and_no_others() -> None:
    """Over three edges; nothing is told after it, the others do not notice, and are not asked about."""
    found = await revoking(600, 200)
    assert len(found.seconds) == 200
    assert found.within(0.99) < max(1.0, 5 * found.slowest), "a change took that long to reach the others"
    assert found.ends == {(ACK, END)}
    assert found.results == {'{"_meta": null, "resultType": "complete"}'}
    assert found.others == {(ACK, UPDATED)}
    assert 200 <= found.questions <= 220, "one for each that it concerns, and few that were repeated"


@pytest.mark.timeout(120)
async def test_streams_outlive_a_restart_of_all_services_which_refuses_new_ones() -> None:
    """S1, blueprint 6: subscriptions, catalog, authorization and the store are away for a while."""
    async with Fleet(APP, edges=2, environment=GUARDED) as fleet, held(fleet, ANN, 5) as streams:
        await fleet.services.kill()
        for url in fleet.urls:
            assert await status(url, ANN) == 503
        assert await publish(fleet.nats_settings("operator"), "mcp", [BOOK]) == 0
        await until(lambda: all(stream.kinds() == [ACK, UPDATED] for stream in streams))
        await fleet.restart(fleet.services, drain=False)
        with anyio.fail_after(20):
            while [await status(url, ANN) for url in fleet.urls] != [200, 200]:  # noqa: ASYNC110  # no event of ours
                await anyio.sleep(0.1)
        async with held(fleet, ANN, 2) as more:
            assert await publish(fleet.nats_settings("operator"), "mcp", [BOOK]) == 0
            await until(lambda: all(stream.kinds() == [ACK, UPDATED, UPDATED] for stream in streams))
            await until(lambda: all(stream.kinds() == [ACK, UPDATED] for stream in more))


@pytest.mark.rule("S2")
@pytest.mark.timeout(120)
async def test_without_authorization_streams_last_as_long_as_their_permission() -> None:
    lasts = 2.5
    own = {**GUARDED, "MCPFLEET_ADMISSION_LASTS": f"{lasts}", "MCPFLEET_PERMISSION_LASTS": f"{lasts}"}
    async with Fleet(APP, edges=2, environment=own) as fleet, held(fleet, ANN, 5) as streams:
        await anyio.sleep(lasts)  # their first permission has ended, and was renewed
        assert not any(stream.is_over for stream in streams)
        await fleet.services.kill()
        died = time.monotonic()
        assert await publish(fleet.nats_settings("operator"), "mcp", [BOOK]) == 0
        await until(lambda: all(stream.is_over for stream in streams), within=3 * lasts)
        assert {tuple(stream.kinds()) for stream in streams} == {(ACK, UPDATED, END)}
        assert max(stream.ended for stream in streams) < died + 2 * lasts


@pytest.mark.rule("S19")
@pytest.mark.timeout(120)
async def test_an_edge_that_nats_was_cut_off_from_tells_each_stream_once_of_each_thing() -> None:
    """It makes good what changed meanwhile: lists by their number, resources by catching up. Times are a fifth."""
    links: dict[str, TcpProxy] = {}
    async with AsyncExitStack() as stack:

        async def route(name: str, url: str) -> str:
            if name != "edge 1":
                return url
            links[name] = await stack.enter_async_context(proxied(url))
            return links[name].url

        fleet = await stack.enter_async_context(Fleet(APP, edges=2, factor=5, route=route))
        wanted = {"resourceSubscriptions": [BOOK, OTHER], "toolsListChanged": True}
        streams = await stack.enter_async_context(at_every_edge(fleet, 10, **wanted))
        cut, whole = streams[:10], streams[10:]
        links["edge 1"].cut()
        async with Client(fleet.urls[1]) as client:
            await client.call_tool("rename", {"book": 1, "title": "Sanditon"})
            await client.call_tool("grow", {"name": "added"})
        await until(lambda: all(len(stream.messages) == 3 for stream in whole))
        assert {(tuple(stream.uris()), len(stream.kinds())) for stream in whole} == {((BOOK,), 3)}
        edge = fleet.edges[0].log
        assert edge is not None
        await until(lambda: "link lost" in edge.read_text())
        assert {tuple(stream.kinds()) for stream in cut} == {(ACK,)}
        links["edge 1"].heal()
        await until(lambda: all(len(stream.messages) >= 4 for stream in cut), within=20)
        # A second copy of a message would come before what is told now.
        assert await publish(fleet.nats_settings("operator"), "mcp", [OTHER]) == 0
        await until(lambda: all(stream.uris()[-1:] == [OTHER] for stream in whole))
        await until(lambda: all(len(stream.messages) >= 5 for stream in cut))
        for stream in cut:
            assert sorted(stream.kinds()[1:]) == sorted([UPDATED] * 3 + [changed("tools")])
            assert (sorted(stream.uris()[:2]), stream.uris()[2:]) == ([BOOK, OTHER], [OTHER])
        assert {(tuple(stream.uris()), len(stream.kinds())) for stream in whole} == {((BOOK, OTHER), 4)}


@pytest.mark.rule("S12", "S17")
@pytest.mark.timeout(120)
async def test_a_draining_edge_ends_many_streams_over_time_and_exits() -> None:
    found = await draining(200, drain=5.0)
    assert found.kinds == {(ACK, END)}
    assert found.ends == {"complete"}
    assert found.closed == 200
    assert found.seconds[-1] - found.seconds[0] > 1.5, "spread, so that not all come to another edge at once"
    assert found.most_in_a_second < 150
    assert found.exited < 7
    assert found.exit_code == 0
