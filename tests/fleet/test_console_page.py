"""The console as people see it: in a real Chromium, in light and in dark."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest

from mcpfleet.contracts.permissions import pool_user
from mcpfleet.contracts.stats import LARGEST, ReportedError, Stats, pool_stats_subject
from mcpfleet.testing.fleet import Fleet
from tests.contract.fleet.listener import listening
from tests.fleet.consoles import ON, bus_as, consoles
from tests.fleet.tasking import complete, make, take
from tests.kit.node import NODE, environment, install

HERE: Final = Path(__file__).parent
APP: Final = HERE / "library_app.py"
BOOK: Final = "library://books/1"
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
        with anyio.fail_after(30):
            while line := await self._process.stdout.readline():
                seen: dict[str, Any] = json.loads(line)
                assert errors or not seen["errors"]
                if holds(seen):
                    return seen
        raise AssertionError("the browser has ended: its lines above say why")


@asynccontextmanager
async def opened(browser: Path, url: str, scheme: str, *picture: str) -> AsyncIterator[Page]:
    """Open a page for the length of a block."""
    script = browser / "look.mjs"  # beside its modules, where Node looks for them
    script.write_text((HERE / "browser" / "look.mjs").read_text())
    process = await asyncio.create_subprocess_exec(
        NODE, script, url, scheme, *picture,
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
        assert seen["scripts"] == 1
        assert seen["links"] == [f"http://jaeger.example/trace/{TRACE}"]
        assert seen["background"] == "rgb(17, 20, 24)"
