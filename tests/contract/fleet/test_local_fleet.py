"""A fleet inside of a test does for the official client what a fleet of processes does, on the switch and on NATS."""

from __future__ import annotations

import gc
import threading
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from mcpfleet.edge.streams.hub import Hub
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.app import ObservedApp, text
from tests.kit.waiting import until


@pytest.fixture(params=[False, True], ids=["memory", "nats"])
def nats(request: pytest.FixtureRequest) -> bool:
    connected_by_nats: bool = request.param
    return connected_by_nats


async def test_it_lists_and_calls(observed: ObservedApp, nats: bool) -> None:
    async with LocalFleet(observed.app, nats=nats) as fleet, fleet.client() as client:
        assert client.protocol_version == "2026-07-28"
        assert client.server_info is not None
        assert client.server_info.name == "desk"
        assert "add" in [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("add", {"left": 2, "right": 3})
        assert (result.is_error, result.structured_content) == (False, 5)


async def test_handlers_run_on_a_thread_of_their_own_as_in_a_worker(observed: ObservedApp, nats: bool) -> None:
    """One that blocks its loop blocks neither the bus nor the test."""
    async with LocalFleet(observed.app, nats=nats) as fleet, fleet.client() as client:
        await client.call_tool("add", {"left": 2, "right": 3})
    assert threading.get_ident() not in observed.threads


async def test_progress_arrives_while_the_call_runs_and_in_order(observed: ObservedApp, nats: bool) -> None:
    """P2, P5: an answer streams, which a transport that waits for its end would not show."""
    seen: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with LocalFleet(observed.app, nats=nats) as fleet, fleet.client() as client:
        result = await client.call_tool("count", {"to": 5}, progress_callback=hear)
    assert text(result) == "counted to 5"
    assert seen == [0, 1, 2, 3, 4, 5]


async def test_a_client_that_leaves_cancels_its_call(observed: ObservedApp, nats: bool) -> None:
    """D12, P7."""
    async with LocalFleet(observed.app, nats=nats) as fleet, fleet.client() as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "hold", {"name": "one"})
            await until(observed.started["one"].is_set)
            tasks.cancel_scope.cancel()
        await until(lambda: "one" in observed.cancelled, within=2)


async def test_what_is_for_the_model_and_what_is_an_error_of_the_protocol(observed: ObservedApp, nats: bool) -> None:
    """D3, T11."""
    async with LocalFleet(observed.app, nats=nats) as fleet, fleet.client() as client:
        refused = await client.call_tool("refuse", {"why": "closed"})
        assert (refused.is_error, text(refused)) == (True, "closed")
        with pytest.raises(MCPError) as raised:
            await client.call_tool("nothing", {})
        assert raised.value.error.code == -32602


async def test_any_edge_and_any_worker_serve(observed: ObservedApp, nats: bool) -> None:
    """Invariant 1."""
    async with LocalFleet(observed.app, edges=2, workers=2, nats=nats) as fleet:
        for edge in (0, 1):
            async with fleet.client(edge) as client:
                for number in range(20):
                    assert (await client.call_tool("act", {"token": f"{edge} {number}"})).is_error is False
    assert set(observed.effects.values()) == {1}
    assert len(observed.effects) == 40


async def test_a_worker_of_another_version_can_join(observed: ObservedApp, nats: bool) -> None:
    newer = ObservedApp("2.0.0")
    async with LocalFleet(observed.app, nats=nats) as fleet, fleet.client() as client:
        await fleet.add_worker(newer.app)
        await fleet.workers[0].stop()
        assert (await client.call_tool("act", {"token": "one"})).is_error is False
    assert newer.effects == {"one": 1}


async def test_requests_of_any_form_can_be_sent(observed: ObservedApp, nats: bool) -> None:
    async with LocalFleet(observed.app, nats=nats) as fleet, fleet.http() as http:
        assert (await http.get("/mcp")).status_code == 405
        assert (await http.post("/elsewhere", content=b"{}")).status_code == 404
        refused = await http.post("/mcp", content=b"{", headers={"Content-Type": "application/json"})
        assert refused.status_code == 400


async def test_settings_reach_every_part(observed: ObservedApp, nats: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names that processes read; what the test's own process has in its environment counts for nothing."""
    monkeypatch.setenv("MCPFLEET_SLOTS", "7")
    environment: dict[str, Any] = {
        "MCPFLEET_ENDPOINTS": '{"tools": {"path": "/tools"}}',
        "MCPFLEET_DISCOVER_TTL": "1",
    }
    async with LocalFleet(observed.app, environment=environment, nats=nats) as fleet:
        async with fleet.client(path="/tools") as client:
            assert (await client.call_tool("add", {"left": 2, "right": 3})).structured_content == 5
        assert fleet.edges[0].process.settings.discover_ttl == 1
        assert fleet.workers[0].process.settings.slots == 32


async def test_of_an_edge_that_was_killed_nothing_is_held(observed: ObservedApp, nats: bool) -> None:
    """A test that kills edges for an hour would else find that its fleet grows."""
    async with LocalFleet(observed.app, edges=2, nats=nats) as fleet:
        async with fleet.client(0) as client:
            await client.call_tool("add", {"left": 2, "right": 3})
        before = len(hubs())
        await fleet.edges[0].kill()
        await until(lambda: len(hubs()) == before - 1)


def hubs() -> list[Hub]:
    """Those of all edges that this process holds."""
    gc.collect()
    return [thing for thing in gc.get_objects() if isinstance(thing, Hub)]
