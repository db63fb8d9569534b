"""Two NATS servers whose route is cut: parts of a fleet do not hear each other, and all believe in their links."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from mcpfleet.cli.fleet import Plan, running
from tests.contract.fleet.listener import ACK, UPDATED, changed, listening
from tests.fleet.test_streams import APP, BOOK, plain
from tests.kit.nats_pair import nats_pair
from tests.kit.tasks import CAPABLE, TaskClient
from tests.kit.waiting import until

TOLD = "notifications/tasks"
HEALS = 2.0
"""Seconds between two comparisons; 15 by default."""


@pytest.mark.rule("S19")
@pytest.mark.timeout(120)
async def test_no_client_notices_a_route_between_nats_servers_that_is_cut(
    tmp_path: Path,
) -> None:
    """An edge is beyond it: calls have their results, lists and tasks are right again soon, and nothing comes twice."""
    async with AsyncExitStack() as stack:
        pair = await stack.enter_async_context(nats_pair(tmp_path, ["library"]))

        async def route(name: str, _: str) -> str:
            return pair.urls[name == "edge 2"]

        environment = {**pair.environment, "MCPFLEET_HEAL_INTERVAL": f"{HEALS}", "MCPFLEET_LAME": "0"}
        plan = Plan(str(APP), edges=2, nats_url=pair.urls[0], environment=environment, route=route, logs=tmp_path)
        fleet = await stack.enter_async_context(running(plan))
        http = await stack.enter_async_context(plain())
        near, far = [await stack.enter_async_context(Client(url)) for url in fleet.urls]
        task = await TaskClient(http, fleet.urls[0]).start("bind", seconds=2.0)
        wanted: dict[str, Any] = {"resourceSubscriptions": [BOOK], "toolsListChanged": True, "taskIds": [task]}
        here, there = [
            await stack.enter_async_context(listening(http, url, 5, capabilities=CAPABLE, **wanted))
            for url in fleet.urls
        ]
        results: list[object] = []

        async def call(client: Client, tool: str, **arguments: object) -> None:
            results.append((await client.call_tool(tool, arguments)).is_error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(far, "read_aloud", seconds=2.0))
            await anyio.sleep(1)  # a call whose worker is known by then; of one that was just sent nobody could tell
            pair.route.cut()
            await call(near, "rename", book=1, title="Sanditon")
            await call(near, "grow", name="added")
            tasks.start_soon(lambda: call(far, "read_aloud", seconds=0.0))
            await anyio.sleep(2)
            assert {tuple(stream.kinds()) for stream in there} == {(ACK,)}, "it was cut"
            pair.route.heal()
            healed = time.monotonic()
            await until(lambda: all({changed("tools"), TOLD} <= set(each.kinds()) for each in there), within=15)
            assert time.monotonic() - healed < HEALS * 1.25 + 2.5
        assert results == [False] * 4
        await near.call_tool("rename", {"book": 1, "title": "Emma"})
        await until(lambda: all(each.kinds()[-1] == UPDATED for each in here + there))
        for stream in here:
            assert sorted(stream.kinds()) == sorted([ACK, UPDATED, changed("tools"), TOLD, UPDATED])
        for stream in there:
            assert sorted(stream.kinds()) == sorted([ACK, changed("tools"), TOLD, UPDATED]), "its hint was lost"
        assert {each.messages[-1]["params"]["uri"] for each in there} == {BOOK}
