"""`mcpfleet stdio`: the official client starts it, and speaks with a fleet through its two pipes, in both eras."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest
from anyio.from_thread import start_blocking_portal
from mcp import Client
from mcp.client.context import ClientRequestContext
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import ElicitRequestParams, ElicitResult, TextContent

from mcpfleet.testing.fleet import Fleet
from tests.kit.piped import STDIO, WITHIN, Piped, piped
from tests.kit.waiting import until

APP = Path(__file__).with_name("app.py")
ASKING = Path(__file__).with_name("asking.py")
Mode = Literal["auto", "legacy"]
MODES: tuple[Mode, ...] = ("auto", "legacy")
ANSWERS = {"Which size?": {"size": "large"}, "Which colour?": {"name": "blue"}}


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """A fleet for the tests that hurt nobody."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Fleet(APP)) as fleet:
        yield fleet


@asynccontextmanager
async def client(url: str, mode: Mode, *words: str, **options: Any) -> AsyncIterator[Client]:
    """The official client, over a process that it starts."""
    command = StdioServerParameters(command=sys.executable, args=[*STDIO, url, *words])
    async with Client(stdio_client(command), mode=mode, **options) as connected:
        yield connected


@pytest.mark.parametrize("mode", MODES)
async def test_it_lists_calls_and_reports_progress(fleet: Fleet, mode: Mode) -> None:
    seen: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with client(fleet.urls[0], mode) as connected:
        assert connected.protocol_version == {"auto": "2026-07-28", "legacy": "2025-11-25"}[mode]
        assert "add" in {tool.name for tool in (await connected.list_tools()).tools}
        result = await connected.call_tool("count", {"to": 3}, progress_callback=hear)
    [block] = result.content
    assert isinstance(block, TextContent)
    assert (block.text, seen) == ("counted to 3", [0, 1, 2, 3])


@pytest.mark.parametrize("mode", MODES)
async def test_it_answers_the_servers_questions(mode: Mode, tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    asked: list[str] = []

    async def answer(_context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        content = ANSWERS.get(params.message, {"text": "hello"})
        return ElicitResult(action="accept", content=dict(content))

    async with (
        Fleet(ASKING, environment={"ASKING_STEPS": str(steps)}) as fleet,
        client(fleet.urls[0], mode, elicitation_callback=answer) as connected,
    ):
        result = await connected.call_tool("order", {"item": "cup"})
    [block] = result.content
    assert isinstance(block, TextContent)
    assert (block.text, len(asked)) == ("reserved cup: large, blue, hello", 3)


async def hold(process: Piped, folder: Path) -> None:
    """Have a call run."""
    process.ask(1, "tools/call", name="hold", arguments={"folder": str(folder)})
    assert (await process.hear())["method"] == "notifications/progress"


@pytest.mark.rule("B32")
@pytest.mark.parametrize("how", ["input", "signal", "output"])
async def test_it_ends_within_two_seconds_and_cancels_what_ran(fleet: Fleet, how: str, tmp_path: Path) -> None:
    async with piped(*STDIO, fleet.urls[0]) as process:
        await hold(process, tmp_path)
        if how == "input":
            lasted, said, log = await process.end()
        elif how == "signal":
            process.process.send_signal(signal.SIGTERM)
            lasted, said, log = await process.ended(time.monotonic())
        else:
            process.output.close()
            began = time.monotonic()
            process.ask(2, "tools/list")
            await until(lambda: process.process.poll() is not None, within=WITHIN)
            lasted, said, log = time.monotonic() - began, b"", b""
        assert (process.process.returncode, said, log) == (0, b"", b"")
    assert lasted < 2.0
    await until((tmp_path / "cancelled").exists)


@pytest.mark.rule("B32")
async def test_a_dead_edge_is_an_error_of_its_calls_and_a_new_one_is_found(tmp_path: Path) -> None:
    async with Fleet(APP) as fleet, piped(*STDIO, fleet.urls[0]) as process:
        await hold(process, tmp_path)
        await fleet.restart(fleet.edges[0], drain=False)
        lost = await process.hear()
        assert lost["id"] == 1
        assert "may have run" in lost["error"]["message"]
        process.ask(2, "tools/call", name="add", arguments={"left": 2, "right": 3})
        assert (await process.hear())["result"]["structuredContent"] == 5
        _, rest, _ = await process.end()
        assert rest == b""


NOISY = """
import os, sys, warnings
from mcpfleet.app import App
print("imported")
warnings.warn("careful")
os.write(1, b"raw\\n")
app = App("noisy", version="1")

@app.tool()
def shout(times: int) -> int:
    \"\"\"Print.\"\"\"
    print("shouting")
    os.system("echo from a child")
    return times

if __name__ == "__main__":
    app.run(transport="stdio")
"""


@pytest.mark.rule("B32")
async def test_an_application_is_served_and_nothing_but_the_protocol_is_printed(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    async with piped(*STDIO, "noisy.py", directory=tmp_path) as process:
        process.ask(1, "tools/call", name="shout", arguments={"times": 3})
        while (said := await process.hear()).get("id") != 1:
            assert said["jsonrpc"] == "2.0"
        assert said["result"]["structuredContent"] == 3
        descendants = psutil.Process(process.process.pid).children(recursive=True)
        lasted, rest, log = await process.end()
    assert (lasted < 2.0, rest, process.process.returncode) == (True, b"", 0)
    assert len(descendants) >= 5
    await until(lambda: not any(each.is_running() for each in descendants), within=5.0)
    assert b"shouting" in log
    assert not (tmp_path / ".mcpfleet").exists()


async def test_an_application_that_cannot_start_is_told_to_its_client(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import json\njson.loads('{')\n")
    async with piped(*STDIO, "broken.py", directory=tmp_path) as process:
        process.ask(1, "server/discover")
        assert "does not run" in (await process.hear())["error"]["message"]
        _, rest, log = await process.ended(time.monotonic())
    assert (process.process.returncode, rest) == (2, b"")
    assert b"JSONDecodeError" in log
