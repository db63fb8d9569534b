"""Makes the pictures of observability/traces.md again: a call, a task and two changes, as Jaeger shows them.

    .venv/bin/python -m tests.fleet.pictures --pages path/to/jaeger-ui/packages/jaeger-ui/build

`jaeger` must be on the path. A Jaeger that was built from source has no pages of its own: they are those of
github.com/jaegertracing/jaeger-ui at the same version, built by `npm ci && npm run build`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import httpx2
from mcp import Client
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged

from mcpfleet.testing.fleet import Fleet
from tests.fleet.test_one_trace import CALL, HINT, LIST_HINT, NEWS, TRACED, caused_by, fleet_of, is_joined, of_trace
from tests.kit.jaeger import Jaeger, jaeger
from tests.kit.node import NODE, environment, install
from tests.kit.otlp import Span
from tests.kit.tasks import TaskClient

ROOT: Final = Path(__file__).parents[2]
BROWSER: Final = Path(__file__).with_name("browser")
LIBRARY: Final = ROOT / "examples" / "library.py"
PICTURES: Final = ROOT / "observability" / "pictures"
WIDTH: Final = 1280
HEAD: Final = 212
"""Pixels of a page above its spans."""
ROW: Final = 29
"""Pixels of a span."""
SETTLE: Final = "process tasks.pool.{pool}.settle"


async def call(fleet: Fleet) -> None:
    """One call of a tool."""
    async with Client(fleet.urls[0]) as client:
        await client.call_tool("search", {"query": "austen"})


async def task(fleet: Fleet) -> None:
    """One task, which asks in between; its client polls, which are requests and traces of their own."""
    async with httpx2.AsyncClient() as http:
        client = TaskClient(http, fleet.urls[0])
        made = await client.start("take_stock")
        await client.until(made, "input_required")
        await TaskClient(http, fleet.urls[1]).update(made, look={"with_titles": True})
        await client.until(made, "completed")


async def change(fleet: Fleet) -> None:
    """A resource that is said to have changed, and a tool that comes, while a stream on each edge listens."""
    async with listening(fleet.urls[0]) as one, listening(fleet.urls[1]) as other, Client(fleet.urls[0]) as client:
        await client.call_tool("tell", {})
        assert [await anext(stream) for stream in (one, other)] == [ResourceUpdated(uri=NEWS)] * 2
        await client.call_tool("grow", {})
        assert [await anext(stream) for stream in (one, other)] == [ToolsListChanged()] * 2


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[Any]:
    """A stream of both."""
    async with Client(url) as client, client.listen(tools_list_changed=True, resource_subscriptions=[NEWS]) as stream:
        yield stream


Found = Callable[[Sequence[Span]], list[Span]]
"""Of all spans those by which a trace is known once it is whole."""
SCENES: Final[Sequence[tuple[Path, Callable[[Fleet], Any], dict[str, Found]]]] = (
    (LIBRARY, call, {"call": lambda spans: caused_by(spans, "tools/call search", CALL)}),
    (LIBRARY, task, {"task": lambda spans: caused_by(spans, "tools/call take_stock", SETTLE)}),
    (
        TRACED,
        change,
        {
            "resource-change": lambda spans: caused_by(spans, "tools/call tell", HINT)[1:],
            "list-change": lambda spans: caused_by(spans, "tools/call grow", LIST_HINT)[1:],
        },
    ),
)


async def main(pages: Path, folder: Path) -> None:
    """Play each scene, and take its pictures."""
    browser = await anyio.to_thread.run_sync(install, BROWSER)
    script = Path(shutil.copy(BROWSER / "picture.mjs", browser))
    async with jaeger(pages) as running:
        for app, play, wanted in SCENES:
            async with fleet_of(running, app) as fleet:
                await play(fleet)
                for name, found in wanted.items():
                    await anyio.to_thread.run_sync(_take, script, *await _page(running, found), folder / f"{name}.png")


async def _page(running: Jaeger, found: Found) -> tuple[str, int]:
    """The page of a trace, and its height."""
    spans = await running.wait_for(
        lambda spans: (ends := found(spans)) and is_joined(of_trace(spans, ends[0].trace_id)), timeout=20
    )
    trace = found(spans)[0].trace_id
    return f"{running.ui}/trace/{trace}?uiEmbed=v0", HEAD + ROW * len(of_trace(spans, trace))


def _take(script: Path, url: str, height: int, picture: Path) -> None:
    command: list[str | Path] = [NODE, script, str(WIDTH), str(height), ".TraceTimelineViewer", url, picture]
    subprocess.run(command, env=environment(), check=True, timeout=60)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=Path, required=True, help="of Jaeger's user interface")
    parser.add_argument("--folder", type=Path, default=PICTURES, help="where the pictures go")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    anyio.run(main, given.pages.resolve(), given.folder)
