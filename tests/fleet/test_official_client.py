"""The official Python client does its work through either of two edges."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from mcpfleet.testing.fleet import Fleet
from tests.kit.waiting import until

APP = Path(__file__).with_name("app.py")
EDGES = (0, 1)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """One fleet for the tests that hurt nobody; it lives on an event loop of its own."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Fleet(APP, edges=2)) as fleet:
        yield fleet


def text(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.parametrize("edge", EDGES)
async def test_it_lists_and_calls_over_2026_07_28(fleet: Fleet, edge: int) -> None:
    """M18, M34: it settles on the modern revision, sees the tools by name, and gets structured results."""
    async with Client(fleet.urls[edge]) as client:
        assert client.protocol_version == "2026-07-28"
        assert client.server_info is not None
        assert client.server_info.name == "fleet-tests"
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == sorted(names)
        assert "add" in names
        result = await client.call_tool("add", {"left": 2, "right": 3})
        assert (result.is_error, result.structured_content, text(result)) == (False, 5, "5")


async def test_both_edges_lead_to_the_same_worker(fleet: Fleet) -> None:
    """Invariant 1: any edge answers any request."""
    answers = set()
    for url in fleet.urls:
        async with Client(url) as client:
            answers.add((await client.call_tool("whoami", {})).structured_content)
    assert answers == {fleet.workers[0].pid}


@pytest.mark.parametrize("edge", EDGES)
async def test_it_receives_progress_in_order(fleet: Fleet, edge: int) -> None:
    """P2, P5, M60: every report arrives once, the first even though it is 0, before the result."""
    seen: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with Client(fleet.urls[edge]) as client:
        result = await client.call_tool("count", {"to": 5}, progress_callback=hear)
    assert text(result) == "counted to 5"
    assert seen == [(step, 5, f"step {step}") for step in range(6)]


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("tool", ["hold", "hold_thread"])
async def test_the_handler_hears_the_cancel_within_a_second(fleet: Fleet, edge: int, tool: str, tmp_path: Path) -> None:
    """D12, P7: a client that leaves cancels its call, in another process, whether or not the answer streams yet."""
    async with Client(fleet.urls[edge]) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, tool, {"folder": str(tmp_path)})
        await until((tmp_path / "started").exists)
        tasks.cancel_scope.cancel()
    await until((tmp_path / "cancelled").exists, within=1.0)


async def test_an_exceptions_text_stays_with_us(fleet: Fleet) -> None:
    """D3: the model reads that the tool failed, with a reference id that the log has too; never the text."""
    async with Client(fleet.urls[0]) as client:
        result = await client.call_tool("fail", {"secret": "hunter2"})
    assert result.is_error
    assert "hunter2" not in text(result)
    reference = text(result).partition("(reference ")[2].partition(")")[0]
    assert reference in fleet.logs()


async def test_a_tool_error_is_for_the_model(fleet: Fleet) -> None:
    """D3: what the author says to the model arrives as it was said."""
    async with Client(fleet.urls[0]) as client:
        result = await client.call_tool("refuse", {"why": "the shop is closed"})
    assert (result.is_error, text(result)) == (True, "the shop is closed")


async def test_bad_arguments_are_for_the_model_and_an_unknown_tool_is_not(fleet: Fleet) -> None:
    """T11, groups 11 and 14: a schema's failure is a result, an unknown name is an error of the protocol."""
    async with Client(fleet.urls[0]) as client:
        result = await client.call_tool("add", {"left": "two", "right": 3})
        assert result.is_error
        assert "left" in text(result)
        with pytest.raises(MCPError) as refused:
            await client.call_tool("subtract", {})
    assert refused.value.error.code == -32602
