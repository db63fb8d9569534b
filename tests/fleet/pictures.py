"""Makes the pictures of the documentation again: traces as Jaeger shows them, and the console.

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

from mcpfleet.contracts.permissions import pool_user
from mcpfleet.testing.fleet import Fleet
from tests.contract.fleet.listener import listening as listening_to
from tests.fleet.consoles import ON, bus_as, consoles
from tests.fleet.tasking import complete, make, take
from tests.fleet.test_console_page import APP as SHELF
from tests.fleet.test_console_page import BOOK, opened
from tests.fleet.test_one_trace import CALL, HINT, LIST_HINT, NEWS, TRACED, caused_by, fleet_of, is_joined, of_trace
from tests.kit.jaeger import Jaeger, jaeger
from tests.kit.node import NODE, environment, install
from tests.kit.otlp import Span
from tests.kit.tasks import TaskClient

ROOT: Final = Path(__file__).parents[2]
BROWSER: Final = Path(__file__).with_name("browser")
LIBRARY: Final = ROOT / "examples" / "library.py"
PICTURES: Final = ROOT / "observability" / "pictures"
CONSOLE: Final = ROOT / "docs" / "console.png"
_SHOWN: Final = 8.0
"""Seconds until a console's figures are those of the load."""
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
"""The spans that show that a trace is whole."""
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


async def console(running: Jaeger, browser: Path, picture: Path) -> None:
    """The console of a fleet that has something to do, where a handler has failed and a task is stuck."""
    own = {**ON, "MCPFLEET_JAEGER_URL": running.ui, "OTEL_EXPORTER_OTLP_ENDPOINT": running.endpoint}
    async with (
        Fleet(SHELF, edges=2, workers=2, environment={**own, "OTEL_METRICS_EXPORTER": "none"}) as fleet,
        bus_as(fleet, "edge") as edge,
        bus_as(fleet, pool_user(fleet.pool)) as worker,
        httpx2.AsyncClient() as http,
        listening_to(http, fleet.urls[1], 5, resourceSubscriptions=[BOOK]),
    ):
        for _ in range(3):
            await make(edge, fleet.pool)
        await complete(worker, fleet.pool, await take(worker, fleet.pool))
        await take(worker, fleet.pool)
        async with (
            opened(browser, consoles(fleet, "edge")[0], "light", str(picture)),
            anyio.create_task_group() as load,
        ):
            for url in fleet.urls:
                load.start_soon(_keep_calling, url)
            async with Client(fleet.urls[0]) as client:
                await client.call_tool("shrink", {"name": "what is not there"})
            await anyio.sleep(_SHOWN)
            load.cancel_scope.cancel()


async def _keep_calling(url: str) -> None:
    async with Client(url) as client:
        while True:
            await client.call_tool("rename", {"book": 1, "title": "Emma"})
            await anyio.sleep(0.05)


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
        await console(running, browser, CONSOLE)


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
