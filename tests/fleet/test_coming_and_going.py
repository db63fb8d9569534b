"""Processes that are told to leave finish what they have, and a NATS that goes away comes back."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from hyperframe.frame import GoAwayFrame
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from mcpfleet.cli.operate import withdraw
from mcpfleet.testing.fleet import Fleet
from tests.kit.http2 import Frames, Peer
from tests.kit.raw import connected
from tests.kit.waiting import until

APP = Path(__file__).with_name("app.py")


def said(result: CallToolResult | None) -> str:
    assert result is not None
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


async def test_a_draining_edge_finishes_its_calls_and_leads_clients_away(tmp_path: Path) -> None:
    """D14: what runs ends with its result, what arrives is still served, and each answer closes its connection."""
    environment = {"MCPFLEET_LAME": "1"}
    async with Fleet(APP, environment=environment) as fleet, connected(fleet.urls[0]) as running:
        await running.send("tools/call", {"name": "hold", "arguments": {"folder": str(tmp_path)}})
        async with connected(fleet.urls[0]) as late:
            await until((tmp_path / "started").exists)
            fleet.edges[0].signal(signal.SIGTERM)
            await until(lambda: "stopping" in fleet.logs())
            await late.send("tools/call", {"name": "add", "arguments": {"left": 1, "right": 1}})
            answer = await late.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
        (tmp_path / "release").touch()
        finished = await running.answer()
        assert b"released" in finished.body
        await until(lambda: not fleet.edges[0].is_running)
        assert fleet.edges[0].exit_code == 0


@pytest.mark.rule("S23")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_gets_its_result_from_the_only_edge_which_drains(
    mode: Literal["auto", "legacy"], tmp_path: Path
) -> None:
    """It asks for the tool list before it returns the result, on another connection; and so may whoever called it."""
    async with (
        Fleet(APP, environment={"MCPFLEET_DRAIN_GRACE": "1"}) as fleet,
        Client(fleet.urls[0], mode=mode) as client,
    ):
        results: list[CallToolResult] = []

        async def hold() -> None:
            results.append(await client.call_tool("hold", {"folder": str(tmp_path)}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            await until((tmp_path / "started").exists)
            fleet.edges[0].signal(signal.SIGTERM)
            await until(lambda: "stopping" in fleet.logs())
            assert (await ready(fleet)).status_code == 503
            (tmp_path / "release").touch()
        assert [said(result) for result in results] == ["released"]
        assert (await client.list_tools(cache_mode="bypass")).tools
        await until(lambda: not fleet.edges[0].is_running)
        assert fleet.edges[0].exit_code == 0


@pytest.mark.rule("D14")
async def test_a_draining_edge_leads_clients_of_http_2_away() -> None:
    """They hear it though they ask nothing, and before the edge is gone."""
    async with Fleet(APP, environment={"MCPFLEET_LAME": "1"}) as fleet:
        at = urlsplit(fleet.urls[0])
        async with await anyio.connect_tcp(at.hostname or "", at.port or 0) as stream:
            peer = Peer(stream)
            peer.http.initiate_connection()
            await peer.send()
            await peer.receive()
            fleet.edges[0].signal(signal.SIGTERM)
            with anyio.fail_after(10):
                told = await Frames(peer).until(GoAwayFrame, 0)
            assert fleet.edges[0].is_running
    assert told.last_stream_id == 2**31 - 1


async def ready(fleet: Fleet) -> httpx2.Response:
    """Ask the edge's admin port, as Kubernetes does, whether to send it anything."""
    [line] = [line for line in fleet.logs().splitlines() if '"admin port opened"' in line and '"edge"' in line]
    async with httpx2.AsyncClient() as http:
        return await http.get(f"{json.loads(line)['url']}/readyz")


async def test_a_draining_worker_finishes_its_calls_and_the_next_goes_to_another(tmp_path: Path) -> None:
    """It leaves its groups by drain, so no call is lost in between."""
    results: list[CallToolResult] = []
    async with Fleet(APP, workers=2) as fleet, Client(fleet.urls[0]) as client:
        async with anyio.create_task_group() as tasks:

            async def hold() -> None:
                async with Client(fleet.urls[0]) as other:
                    results.append(await other.call_tool("hold", {"folder": str(tmp_path)}))

            tasks.start_soon(hold)
            started = tmp_path / "started"
            await until(lambda: started.exists() and started.read_text())
            leaving = next(worker for worker in fleet.workers if worker.pid == int(started.read_text()))
            leaving.signal(signal.SIGTERM)
            await until(lambda: "stopped taking calls" in fleet.logs())
            staying = next(worker for worker in fleet.workers if worker is not leaving)
            for _ in range(10):
                assert (await client.call_tool("whoami", {})).structured_content == staying.pid
            (tmp_path / "release").touch()
        await until(lambda: not leaving.is_running)
        assert leaving.exit_code == 0
    assert [said(result) for result in results] == ["released"]


async def test_a_restarted_nats_is_found_again(tmp_path: Path) -> None:
    """Invariant 6: no process need be restarted; a call that waits meanwhile ends, and a later one succeeds."""
    async with Fleet(APP) as fleet, Client(fleet.urls[0]) as client:
        assert (await client.call_tool("whoami", {})).structured_content == fleet.workers[0].pid
        await fleet.restart_nats()
        with anyio.fail_after(10):
            result = await client.call_tool("whoami", {})
        assert result.structured_content == fleet.workers[0].pid
        assert all(child.is_running for child in (*fleet.edges, *fleet.workers))


async def listing(client: Client) -> int:
    """List tools; 0, or the error's code."""
    try:
        await client.list_tools(cache_mode="bypass")
    except MCPError as error:
        return error.error.code
    return 0


async def test_an_operator_withdraws_a_pool_without_workers() -> None:
    """The operator's user takes what lingers off the lists at once."""
    environment = {"MCPFLEET_WORKER_LOST": "1", "MCPFLEET_CATALOG_SWEEP": "0.2"}
    async with Fleet(APP, environment=environment) as fleet, Client(fleet.urls[0]) as client:
        operator = fleet.nats_settings("operator")
        assert await withdraw(operator, fleet.pool) == 1, "it has a worker"
        fleet.workers[0].signal(signal.SIGKILL)
        with anyio.fail_after(10):
            while await withdraw(operator, fleet.pool) != 0:  # noqa: ASYNC110  # the catalog is another process
                await anyio.sleep(0.2)
            while (code := await listing(client)) == 0:
                pass
        assert code == -32601, "M14: the capability went with the last tool"
