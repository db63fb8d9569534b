"""Large arguments and results: whole, in bounded room, or a clear error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from mcp import Client
from mcp_types import CallToolResult, TextContent

from mcpfleet.testing.fleet import Fleet
from tests.kit.raw import connected

APP = Path(__file__).with_name("app.py")
MEGABYTE = 1_000_000
LINE_ENDS = "\u2028\u2029\u0085\r\n"


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """An edge with room for two large results at a time."""
    environment = {"MCPFLEET_RESULT_ROOM": str(12 * MEGABYTE)}
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Fleet(APP, edges=2, environment=environment)) as fleet,
    ):
        yield fleet


def text(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


async def test_arguments_and_a_result_of_five_megabytes_arrive_whole(fleet: Fleet) -> None:
    """Arguments ride in their message, a result is fetched by request."""
    sent = "ü" * (5 * MEGABYTE // 2)
    async with Client(fleet.urls[0], read_timeout_seconds=30) as client:
        assert text(await client.call_tool("echo", {"text": sent})) == sent


async def test_many_large_results_at_once_share_the_room(fleet: Fleet) -> None:
    """Invariant 7: they come one after the other, and NATS cuts nobody off."""
    answers: list[int] = []

    async def call(url: str) -> None:
        async with Client(url, read_timeout_seconds=60) as client:
            answers.append(len(text(await client.call_tool("repeat", {"text": "xyz", "times": MEGABYTE}))))

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(call, fleet.urls[number % 2])
    assert answers == [3 * MEGABYTE] * 10
    assert "link lost" not in fleet.logs()


async def test_a_result_over_the_limit_is_an_error_that_names_the_setting(fleet: Fleet) -> None:
    """Too large is told to the model, and never tried again."""
    async with Client(fleet.urls[0], read_timeout_seconds=30) as client:
        result = await client.call_tool("repeat", {"text": "x" * 100, "times": 80_000})
    assert result.is_error
    assert "MCPFLEET_RESULT_LIMIT" in text(result)


async def test_a_request_over_the_limit_is_413_before_its_body_is_read(fleet: Fleet) -> None:
    """M13: the head says how large it is; nothing is left behind, and the edge goes on."""
    async with connected(fleet.urls[0]) as connection:
        await connection.send_body(b"{", {"Content-Length": str(8 * 1024 * 1024)})
        answer = await connection.head()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
    async with Client(fleet.urls[0]) as client:
        assert text(await client.call_tool("echo", {"text": "still here"})) == "still here"


async def test_unicode_line_ends_break_no_event(fleet: Fleet) -> None:
    """M12: whatever text a tool reports or returns stays inside its one event."""
    seen: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    async with Client(fleet.urls[1]) as client:
        result = await client.call_tool("repeat", {"text": LINE_ENDS, "times": 1000}, progress_callback=hear)
    assert text(result) == LINE_ENDS * 1000
    assert seen == [LINE_ENDS]


async def test_a_result_over_a_megabyte_goes_as_json_where_nothing_was_streamed_before(fleet: Fleet) -> None:
    """D17: the official client takes no event of more than 1 MiB."""
    async with Client(fleet.urls[1], read_timeout_seconds=30) as client:
        result = await client.call_tool("repeat", {"text": LINE_ENDS, "times": MEGABYTE // 4})
    assert text(result) == LINE_ENDS * (MEGABYTE // 4)


async def test_a_body_that_is_not_json_by_a_byte_is_refused_and_costs_nothing(fleet: Fleet) -> None:
    """Invariant 11, -32700: five megabytes that end too early."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"text": "x" * 5 * MEGABYTE}}
    async with connected(fleet.urls[0]) as connection:
        await connection.send_body(json.dumps(message).encode()[:-1], {})
        answer = await connection.answer()
    assert (answer.status, answer.message["error"]["code"]) == (400, -32700)
    async with Client(fleet.urls[0]) as client:
        assert text(await client.call_tool("echo", {"text": "still here"})) == "still here"
