"""The quota of listen streams as edges keep it with the service, which may be away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcpfleet.bus.errors import BusError
from mcpfleet.bus.service import bus_of
from mcpfleet.contracts.subscriptions import SubscriptionsClient
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.quota import Quota
from mcpfleet.process.service import Process
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.app import BOOK, library
from tests.contract.fleet.listener import ACK, UPDATED, listening
from tests.kit.waiting import until


@asynccontextmanager
async def edge(fleet: LocalFleet) -> AsyncIterator[Quota]:
    """One more edge, as far as subscriptions can tell."""
    process = Process("edge", EdgeSettings())
    connector = fleet.switch.connector("edge", process.settings, process=process.id)
    bus = bus_of(process, "edge", connector)
    async with anyio.create_task_group() as tasks:
        await tasks.start(bus.run)
        await bus.wait_up()
        quota = Quota(SubscriptionsClient(bus), process.id, interval=0.1, log=process.log)
        tasks.start_soon(quota.run)
        yield quota
        tasks.cancel_scope.cancel()


def fleet(**settings: Any) -> LocalFleet:
    return LocalFleet(library(), environment={"MCPFLEET_PARTITION_STREAMS": "2", **settings})


@pytest.mark.rule("D7")
async def test_two_edges_share_a_partitions_quota_and_a_place_comes_free_at_once() -> None:
    async with fleet() as running, edge(running) as one, edge(running) as two:
        assert await one.open("mcp", "acme")
        assert await two.open("mcp", "acme")
        assert not await one.open("mcp", "acme")
        assert await one.open("mcp", "other")
        two.close("mcp", "acme")

        with anyio.fail_after(5):
            while not await one.open("mcp", "acme"):  # noqa: ASYNC110  # the service has no event of ours
                await anyio.sleep(0.01)
        assert not await two.open("mcp", "acme")


@pytest.mark.rule("D7")
async def test_what_comes_at_once_is_asked_for_together_and_gets_just_what_is_left() -> None:
    async with fleet(MCPFLEET_PARTITION_STREAMS="30") as running, edge(running) as one, edge(running) as two:
        granted: list[bool] = []

        async def take(quota: Quota) -> None:
            granted.append(await quota.open("mcp", "acme"))

        async with anyio.create_task_group() as tasks:
            for quota in [one] * 20 + [two] * 20:
                tasks.start_soon(take, quota)
        assert (granted.count(True), len(granted)) == (30, 40)
        for quota in (one, two):
            assert not await quota.open("mcp", "acme")


async def test_of_those_that_are_asked_for_together_one_may_leave() -> None:
    async with fleet(MCPFLEET_PARTITION_STREAMS="4") as running, edge(running) as one:
        async with anyio.create_task_group() as tasks, anyio.create_task_group() as leaving:
            leaving.start_soon(one.open, "mcp", "acme")
            for _ in range(3):
                tasks.start_soon(one.open, "mcp", "acme")
            await anyio.lowlevel.checkpoint()
            leaving.cancel_scope.cancel()
        with anyio.fail_after(5):
            while not await one.open("mcp", "acme"):  # noqa: ASYNC110  # the service has no event of ours
                await anyio.sleep(0.01)
        assert not await one.open("mcp", "acme")


@pytest.mark.rule("D7", "S11")
async def test_who_has_no_partition_is_not_counted() -> None:
    """Without authentication only the edge's bound holds."""
    async with fleet() as running, edge(running) as one:
        await running.subscriptions.kill()
        assert [await one.open("mcp", None) for _ in range(5)] == [True] * 5


async def test_what_a_dead_edge_had_is_free_soon() -> None:
    async with fleet(MCPFLEET_EDGE_LOST="1", MCPFLEET_SUBSCRIPTIONS_SWEEP="0.2") as running, edge(running) as one:
        async with edge(running) as two:
            assert [await two.open("mcp", "acme") for _ in range(2)] == [True] * 2
        assert not await one.open("mcp", "acme")
        with anyio.fail_after(10):
            while not await one.open("mcp", "acme"):  # noqa: ASYNC110  # the service has no event of ours
                await anyio.sleep(0.05)


async def test_a_living_edge_keeps_its_places_through_leases() -> None:
    async with fleet(MCPFLEET_EDGE_LOST="0.5", MCPFLEET_SUBSCRIPTIONS_SWEEP="0.1") as running, edge(running) as one:
        assert [await one.open("mcp", "acme") for _ in range(2)] == [True] * 2
        await anyio.sleep(2)
        async with edge(running) as two:
            assert not await two.open("mcp", "acme")


async def test_without_the_service_streams_go_on_and_what_is_counted_is_refused() -> None:
    """Blueprint, 6: losing the store, or its service, ends no stream."""
    async with (
        fleet() as running,
        running.http() as http,
        running.client() as client,
        edge(running) as one,
        listening(http, "/mcp", resourceSubscriptions=[BOOK]) as [stream],
    ):
        await running.subscriptions.kill()
        with pytest.raises(BusError):
            await one.open("mcp", "acme")
        await client.call_tool("place_hold", {"book": 1})
        await until(lambda: stream.kinds() == [ACK, UPDATED])
