"""A call's answer over time: silent streams live, deadlines hold, a client that leaves is believed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from mcpfleet.testing.fleet import Fleet
from tests.kit.raw import connected
from tests.kit.waiting import until

APP = Path(__file__).with_name("app.py")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """An edge that is impatient with silence."""
    environment = {"MCPFLEET_SILENT_AFTER": "0.2", "MCPFLEET_KEEPALIVE": "0.1"}
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Fleet(APP, environment=environment)) as fleet,
    ):
        yield fleet.urls[0]


async def test_a_silent_call_becomes_a_stream_of_comments_and_still_ends(url: str, tmp_path: Path) -> None:
    """D17, M11, M12: comments keep proxies from cutting it, and one event without id or retry ends it."""
    async with connected(url) as connection:
        await connection.send("tools/call", {"name": "persist", "arguments": {"folder": str(tmp_path)}})
        head = await connection.head()
        assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
        assert head.headers["x-accel-buffering"] == "no"
        for _ in range(3):
            assert await connection.chunk() == b": keepalive\n\n"
        (tmp_path / "release").touch()
        while (part := await connection.chunk()).startswith(b":"):
            pass
        assert part.startswith(b"event: message\ndata: {")
        assert b'"text":"finished"' in part
        assert await connection.chunk() == b""


async def test_a_quick_call_is_answered_as_json(url: str) -> None:
    """P5, T9, M19: no update, plain JSON, which no cache may keep; the server is named in its `_meta`."""
    async with connected(url) as connection:
        await connection.send("tools/call", {"name": "add", "arguments": {"left": 1, "right": 2}}, identifier=7)
        answer = await connection.answer()
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.headers["cache-control"] == "no-store, no-transform"
    assert answer.message["id"] == 7
    assert answer.message["result"]["structuredContent"] == 3
    server = answer.message["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]
    assert server == {"name": "fleet-tests", "version": "1.0.0"}


async def test_progress_moves_no_deadline(url: str) -> None:
    """M59, P3, D3: a tool that goes on reporting ends at its timeout, as a result that the model reads."""
    asked = time.monotonic()
    async with connected(url) as connection:
        await connection.send("tools/call", {"name": "dawdle", "arguments": {}, "_meta": {"progressToken": "t"}})
        head = await connection.head()
        assert head.headers["content-type"] == "text/event-stream"
        parts = []
        while part := await connection.chunk():
            parts.append(part)
    assert time.monotonic() - asked < 20  # its thousand steps take 50 s
    assert b'"progressToken":"t"' in parts[0]
    assert b'"isError":true' in parts[-1]
    assert b"did not finish within 0.5 s" in parts[-1]


async def test_work_that_is_to_go_on_outlives_its_client(url: str, tmp_path: Path) -> None:
    """D12: `on_disconnect="continue"` declares work that a leaving client does not stop."""
    async with connected(url) as connection:
        await connection.send("tools/call", {"name": "persist", "arguments": {"folder": str(tmp_path)}})
        await until((tmp_path / "started").exists)
    # Longer than the edge and the worker take to compare what they hold, so that neither counts it as unwanted.
    (tmp_path / "release").touch()
    await until((tmp_path / "finished").exists)
