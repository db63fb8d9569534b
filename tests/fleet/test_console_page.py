"""The console as people see it: in a real Chromium, on a desk and a phone, in light and in dark, by keyboard."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest
from mcp import Client

from mcpfleet.contracts.permissions import pool_user
from mcpfleet.contracts.stats import (
    LARGEST,
    CallTimes,
    ReportedError,
    Role,
    Stats,
    pool_stats_subject,
    service_stats_subject,
)
from mcpfleet.testing.fleet import Fleet
from tests.contract.fleet.listener import listening
from tests.fleet.consoles import ON, bus_as, consoles
from tests.fleet.tasking import complete, make, take
from tests.kit.node import NODE, environment, install

HERE: Final = Path(__file__).parent
APP: Final = HERE / "library_app.py"
BOOK: Final = "library://books/1"
PHONE: Final = 390
DESK: Final = 1200
"""Pixels."""
SCRIPT: Final = "<script>document.title='taken over'</script><img src=x onerror=alert(1)>"
TRACE: Final = "ab" * 16


@pytest.fixture(scope="module")
def browser() -> Path:
    """The folder in which the browser is installed."""
    return install(HERE / "browser")


class Page:
    """A page in a browser, and what was last seen in it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def until(self, holds: Callable[[dict[str, Any]], object], *, errors: bool = False) -> dict[str, Any]:
        """Look until something holds; what goes wrong in the page meanwhile is an error, unless it is awaited."""
        assert self._process.stdout is not None
        last = ""
        with anyio.move_on_after(40):
            while line := await self._process.stdout.readline():
                seen: dict[str, Any] = json.loads(line)
                last = line.decode()
                assert errors or not seen["errors"]
                if holds(seen):
                    return seen
            raise AssertionError("the browser has ended: its lines above say why")
        raise AssertionError(f"the page was last seen as {last}")

    async def wish(self, *wishes: str) -> None:
        """Have things done in the page, as look.mjs knows them."""
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{each}\n" for each in wishes).encode())
        await self._process.stdin.drain()


@asynccontextmanager
async def opened(
    browser: Path, url: str, scheme: str, width: int = DESK, picture: Path | None = None
) -> AsyncIterator[Page]:
    """Open a page for the length of a block, and keep a picture of it."""
    script = browser / "look.mjs"  # beside its modules, where Node looks for them
    script.write_text((HERE / "browser" / "look.mjs").read_text())
    process = await asyncio.create_subprocess_exec(
        NODE, script, url, scheme, str(width), *filter(None, [picture]),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment(), limit=1 << 20,
    )  # fmt: skip
    try:
        yield Page(process)
    finally:
        with anyio.CancelScope(shield=True):
            assert process.stdin is not None
            process.stdin.close()
            with anyio.move_on_after(10):
                # It waits until its output is read.
                await process.communicate()
            if process.returncode is None:
                process.kill()
                await process.wait()


@asynccontextmanager
async def calling(*urls: str) -> AsyncIterator[None]:
    """Call a tool all the time, for the length of a block."""

    async def keep_calling(url: str) -> None:
        async with Client(url) as client:
            while True:
                await client.call_tool("rename", {"book": 1, "title": "Emma"})
                await anyio.sleep(0.05)

    async with anyio.create_task_group() as tasks:
        for url in urls:
            tasks.start_soon(keep_calling, url)
        yield
        tasks.cancel_scope.cancel()


async def test_a_stream_opens_and_closes_and_a_task_moves_through_its_states(browser: Path) -> None:
    """Without an error of a script or a style, and without asking any other host."""
    async with (
        Fleet(APP, edges=2, environment=ON) as fleet,
        bus_as(fleet, "edge") as edge,
        bus_as(fleet, pool_user(fleet.pool)) as worker,
        opened(browser, consoles(fleet, "edge")[0], "light") as page,
    ):
        seen = await page.until(lambda each: each["totals"].get("processes") == "7")
        assert seen["state"] == "live"
        async with (
            httpx2.AsyncClient() as http,
            listening(http, fleet.urls[1], 1, resourceSubscriptions=[BOOK]),
        ):
            await page.until(lambda each: each["totals"]["streams"] == "1")
        await page.until(lambda each: each["totals"]["streams"] == "0")
        await make(edge, fleet.pool)
        seen = await page.until(lambda each: each["tasks"]["ready"] == "1")
        assert ["the fleet", "waiting tasks that no worker takes: 1"] in seen["stuck"]
        task = await take(worker, fleet.pool)
        await page.until(lambda each: (each["tasks"]["ready"], each["tasks"]["held"]) == ("0", "1"))
        await complete(worker, fleet.pool, task)
        await page.until(lambda each: (each["tasks"]["held"], each["tasks"].get("completed")) == ("0", "1"))
        await fleet.edges[0].kill()
        await page.until(lambda each: each["state"] == "lost", errors=True)


async def test_what_a_worker_says_is_text_and_dark_is_dark(browser: Path) -> None:
    """A worker that is taken over writes no markup into the operator's browser."""
    environment = {**ON, "MCPFLEET_JAEGER_URL": "http://jaeger.example"}
    trouble = ReportedError(at=LARGEST, level="error", event=SCRIPT, of=SCRIPT, trace=TRACE, sampled=True)
    lie = Stats(version=SCRIPT, started=0, ready=True, numbers={"memory": LARGEST}, troubles=(trouble,))
    async with (
        Fleet(APP, environment=environment) as fleet,
        bus_as(fleet, pool_user(fleet.pool)) as worker,
        opened(browser, consoles(fleet, "edge")[0], "dark") as page,
    ):
        await page.until(lambda each: each["totals"].get("processes") == "6")
        worker.publish(pool_stats_subject(fleet.pool, "2" * 16), lie.model_dump_json().encode())
        seen = await page.until(lambda each: any(SCRIPT in row for row in each["troubles"]))
        assert any(SCRIPT in row for row in seen["nodes"])
        assert (seen["scripts"], seen["title"]) == (1, "mcpfleet")
        assert seen["links"] == [f"http://jaeger.example/trace/{TRACE}"]
        assert seen["background"] == "rgb(17, 20, 24)"


async def test_a_name_that_is_markup_is_text_in_its_own_view(browser: Path) -> None:
    """A tool's name is its application's; an address may hold anything."""
    lie = Stats(started=0, ready=True, calls=(CallTimes(method="tools/call", tool=SCRIPT, counts=(1,)),))
    async with (
        Fleet(APP, environment=ON) as fleet,
        bus_as(fleet, "edge") as edge,
        opened(browser, consoles(fleet, "edge")[0], "light", PHONE) as page,
    ):
        await page.until(lambda each: each["state"] == "live")
        edge.publish(service_stats_subject(Role.EDGE, "2" * 16), lie.model_dump_json().encode())
        seen = await page.until(lambda each: any(row[0] == SCRIPT for row in each["tools"]))
        assert seen["overflow"] == 0
        await page.wish("click #tools a")
        seen = await page.until(lambda each: each["own"] and each["own"]["name"] == SCRIPT)
        assert (seen["scripts"], seen["overflow"]) == (1, 0)


@pytest.mark.parametrize(("scheme", "width"), [("light", PHONE), ("dark", PHONE), ("light", DESK), ("dark", DESK)])
async def test_the_page_fits_its_screen_and_every_text_is_legible(browser: Path, scheme: str, width: int) -> None:
    """No word is broken, nothing is wider than the screen, every contrast is at least 4.5, and charts have points."""
    async with (
        Fleet(APP, edges=2, environment=ON) as fleet,
        bus_as(fleet, pool_user(fleet.pool)) as worker,
        opened(browser, consoles(fleet, "edge")[0], scheme, width) as page,
        calling(fleet.urls[0]),
    ):
        trouble = ReportedError(at=1, level="error", event="handler failed", of="tool=rename", trace=TRACE)
        lie = Stats(started=0, ready=False, numbers={"slots": 1, "slots_used": 1}, troubles=(trouble,))
        worker.publish(pool_stats_subject(fleet.pool, "2" * 16), lie.model_dump_json().encode())
        await page.until(lambda each: each["troubles"] and any(row[-1] == TRACE for row in each["troubles"]))
        seen = await page.until(lambda each: all(chart["points"] > 0 for chart in each["charts"] or [{"points": 0}]))
        assert (seen["overflow"], seen["broken"], seen["faint"]) == (0, [], [])
        assert [chart["drawn"] for chart in seen["charts"]] == [True] * 3
        assert seen["charts"][0]["label"].startswith("calls/s over 15 minutes: all ")
        [[_, rate, _, p50, p95, _]] = [row for row in seen["tools"] if row[0] == "rename"]
        assert float(rate) > 0
        assert p50.endswith(" ms")
        assert p95.endswith("s")


async def test_a_row_opens_a_view_with_an_address_and_the_browser_goes_back(browser: Path) -> None:
    async with (
        Fleet(APP, environment=ON) as fleet,
        opened(browser, consoles(fleet, "edge")[0], "light", PHONE) as page,
        calling(fleet.urls[0]),
    ):
        async with Client(fleet.urls[0]) as client:
            failed = await client.call_tool("shrink", {"name": "what is not there"})
        await page.until(lambda each: any(row[0] == "shrink" for row in each["tools"]))
        await page.wish('click #tools a[href="console?tool=shrink"]')
        seen = await page.until(lambda each: each["own"] and each["own"]["troubles"] not in ([], [["none"]]))
        assert (seen["url"], seen["title"], seen["overflow"]) == ("/console?tool=shrink", "shrink - mcpfleet", 0)
        assert list(seen["own"]["figures"]) == ["rate", "p50", "p95", "failures", "waiting"]
        [trouble] = seen["own"]["troubles"]
        assert trouble[-1] in str(failed.content), "the client was told the same reference"
        await page.wish("back")
        seen = await page.until(lambda each: each["own"] is None and each["nodes"])
        assert seen["url"] == "/console"
        await page.wish('click #nodes a[href^="console?pool="]')
        seen = await page.until(lambda each: each["own"] and each["own"]["figures"].get("p95", "-") != "-")
        assert seen["own"]["name"].startswith(f"worker of {fleet.pool} ")
        assert seen["own"]["figures"]["state"] == "ready"
        await page.wish("click nav a")
        await page.until(lambda each: each["url"] == "/console" and each["nodes"])


async def test_the_keyboard_reaches_everything_and_its_focus_stays_and_is_seen(browser: Path) -> None:
    """The figures change every second, under a row that has the focus."""
    async with (
        Fleet(APP, environment=ON) as fleet,
        opened(browser, consoles(fleet, "edge")[0], "light") as page,
        calling(fleet.urls[0]),
    ):
        await page.until(lambda each: any(row[0] == "rename" for row in each["tools"]))
        await page.wish("press Tab")
        await page.until(lambda each: each["focus"] == "Skip to the figures" and each["ringed"])
        await page.wish("press Tab")
        await page.until(lambda each: each["focus"] == "mcpfleet" and each["ringed"])
        await page.wish("press Tab")
        seen = await page.until(lambda each: each["focus"] == "rename" and each["ringed"])
        before = seen["tools"]
        seen = await page.until(lambda each: each["tools"] != before)
        assert seen["focus"] == "rename"
        await page.wish("press Enter")
        await page.until(lambda each: each["own"] and each["own"]["name"] == "rename")


async def test_a_page_without_a_report_says_so_and_one_that_gets_no_more_says_for_how_long(browser: Path) -> None:
    """Less motion is none, for who asks for that."""
    async with (
        Fleet(APP, environment=ON) as fleet,
        opened(browser, consoles(fleet, "edge")[0], "light") as page,
    ):
        seen = await page.until(lambda each: True)
        assert seen["says"] in ("waiting for the first report", "live")
        assert seen["moves"]
        await page.wish("reduce")
        await page.until(lambda each: not each["moves"])
        await page.until(lambda each: len(each["nodes"]) == 6)
        fleet.workers[0].signal(signal.SIGSTOP)
        try:
            silent = await page.until(lambda each: "no report for 8 s" in str(each["nodes"]))
            assert "no report for 8 s" in str(silent["stuck"])
        finally:
            fleet.workers[0].signal(signal.SIGCONT)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_browser_at_an_edge_finds_the_endpoint_and_the_console(browser: Path, scheme: str) -> None:
    """The page fits a phone, is legible, and breaks no rule of its own policy."""
    async with Fleet(APP, environment=ON) as fleet:
        console, root = consoles(fleet, "edge")[0], fleet.urls[0].removesuffix("mcp")
        async with opened(browser, root, scheme, PHONE) as page:
            seen = await page.until(lambda each: each["title"] == "An MCP server")
            assert fleet.urls[0] in seen["text"]
            assert (seen["overflow"], seen["faint"], seen["scripts"]) == (0, [], 0)
            await page.wish(f'click a[href="{console}"]')
            await page.until(lambda each: each["state"] == "live" and each["nodes"])
