"""Makes the pictures of the documentation again: the board, the console on a desk and a phone, and traces in Jaeger.

    .venv/bin/python -m tests.fleet.pictures --pages path/to/jaeger-ui/packages/jaeger-ui/build
    .venv/bin/python -m tests.fleet.pictures        # the board and the console alone

`jaeger` must be on the path. A Jaeger that was built from source has no pages of its own: they are those of
github.com/jaegertracing/jaeger-ui at the same version, built by `npm ci && npm run build`.
"""

from __future__ import annotations

import argparse
import math
import random
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
from tests.fleet.test_board import BOARD, PROJECT, show
from tests.fleet.test_board import PICTURE as BOARD_PICTURE
from tests.fleet.test_console_page import APP as SHELF
from tests.fleet.test_console_page import BOOK, DESK, PHONE, opened
from tests.fleet.test_one_trace import CALL, HINT, LIST_HINT, NEWS, TRACED, caused_by, fleet_of, is_joined, of_trace
from tests.kit.jaeger import Jaeger, jaeger
from tests.kit.node import NODE, environment, install
from tests.kit.otlp import Span, otlp_receiver
from tests.kit.tasks import TaskClient

ROOT: Final = Path(__file__).parents[2]
BROWSER: Final = Path(__file__).with_name("browser")
LIBRARY: Final = ROOT / "examples" / "library.py"
PICTURES: Final = ROOT / "observability" / "pictures"
CONSOLE: Final = ROOT / "docs" / "console.png"
ON_A_PHONE: Final = ROOT / "docs" / "console-phone.png"
BUSY: Final = 0.1
"""Seconds between two calls of a client, where the load is at its highest."""
SWELL: Final = 240.0
"""Seconds from one highest load to the next."""
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


async def console(ui: str, endpoint: str, browser: Path, seconds: float) -> None:
    """The console of a fleet that has something to do, where a handler has failed and a task is stuck.

    Args:
        ui: the address of Jaeger's pages.
        endpoint: where traces go.
        browser: the folder in which the browser is installed.
        seconds: how long the fleet is busy before, for its charts.
    """
    own = {**ON, "MCPFLEET_JAEGER_URL": ui, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    async with (
        Fleet(SHELF, edges=2, workers=2, environment={**own, "OTEL_METRICS_EXPORTER": "none"}) as fleet,
        bus_as(fleet, "edge") as edge,
        bus_as(fleet, pool_user(fleet.pool)) as worker,
        httpx2.AsyncClient() as http,
        listening_to(http, fleet.urls[1], 5, resourceSubscriptions=[BOOK]),
        anyio.create_task_group() as load,
    ):
        for url in fleet.urls:
            load.start_soon(_keep_calling, url)
        await anyio.sleep(seconds)
        for _ in range(3):
            await make(edge, fleet.pool)
        await complete(worker, fleet.pool, await take(worker, fleet.pool))
        await take(worker, fleet.pool)
        async with Client(fleet.urls[0]) as client:
            await client.call_tool("shrink", {"name": "what is not there"})
        page = consoles(fleet, "edge")[0]
        await _console_on(browser, page, DESK, CONSOLE)
        await _console_on(browser, f"{page}?tool=rename", PHONE, ON_A_PHONE)
        load.cancel_scope.cancel()


async def _console_on(browser: Path, url: str, width: int, picture: Path) -> None:
    """Take a picture of a console that has its charts."""
    async with opened(browser, url, "light", width, picture) as page:
        await page.until(lambda each: each["charts"] or (each["own"] and each["own"]["charts"]))
        await page.until(lambda _: True)  # once more: the picture of what was seen is taken by then


async def _keep_calling(url: str) -> None:
    """Call two tools, more often and less often in turn."""
    async with Client(url) as client:
        while True:
            await client.call_tool("rename", {"book": 1, "title": "Emma"})
            if random.random() < 0.1:
                await client.call_tool("read_aloud", {"seconds": random.expovariate(20)})
            await anyio.sleep(BUSY * (1.6 + math.cos(2 * math.pi * anyio.current_time() / SWELL)))


async def main(pages: Path | None, folder: Path, seconds: float) -> None:
    """Play each scene, and take its pictures."""
    browser = await anyio.to_thread.run_sync(install, BROWSER)
    script = Path(shutil.copy(BROWSER / "picture.mjs", browser))
    await board()
    if pages is None:
        async with otlp_receiver() as receiver:
            await console("http://127.0.0.1:16686", receiver.endpoint, browser, seconds)
        return
    async with jaeger(pages) as running:
        for app, play, wanted in SCENES:
            async with fleet_of(running, app) as fleet:
                await play(fleet)
                for name, found in wanted.items():
                    await anyio.to_thread.run_sync(_take, script, *await _page(running, found), folder / f"{name}.png")
        await console(running.ui, running.endpoint, browser, seconds)


async def board() -> None:
    """The example's document, as the test's host shows it."""
    folder = await anyio.to_thread.run_sync(install, PROJECT)
    async with Fleet(BOARD, edges=2) as fleet:
        await anyio.to_thread.run_sync(show, folder, fleet.urls, BOARD_PICTURE, BOARD_PICTURE)


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
    parser.add_argument("--pages", type=Path, help="of Jaeger's user interface")
    parser.add_argument("--seconds", type=float, default=900, help="for which the console's fleet is busy")
    parser.add_argument("--folder", type=Path, default=PICTURES, help="where the pictures go")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    anyio.run(main, given.pages and given.pages.resolve(), given.folder, given.seconds)
