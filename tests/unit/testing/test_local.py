"""How a local fleet begins and ends, whatever fails in it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcpfleet.app import App
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.testing.local import LocalFleet
from tests.kit.cost import parses

ROOT = Path(__file__).parents[3]

app = App("tested", version="1")


@app.tool()
async def add(left: int, right: int) -> int:
    """Add two integers."""
    return left + right


@pytest.fixture
async def fleet() -> AsyncIterator[LocalFleet]:
    """A fixture's two ends may run in different tasks."""
    async with LocalFleet(app) as running:
        yield running


async def test_a_fixture_can_hold_it(fleet: LocalFleet) -> None:
    async with fleet.client() as client:
        assert (await client.call_tool("add", {"left": 1, "right": 2})).structured_content == 3


async def test_it_may_be_left_in_another_task_and_leaves_none_behind() -> None:
    before = asyncio.all_tasks()
    fleet = LocalFleet(app)
    await asyncio.create_task(fleet.__aenter__())
    await asyncio.create_task(fleet.__aexit__(None, None, None))
    assert asyncio.all_tasks() == before


async def test_what_keeps_it_from_starting_is_raised_as_it_is() -> None:
    with pytest.raises(ConfigurationError, match="MCPFLEET_STORE_URL"):
        async with LocalFleet(app, environment={"MCPFLEET_STORE_URL": "nonsense"}):
            pass


async def test_a_setting_that_no_service_has_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="MCPFLEET_SLOT:"):
        LocalFleet(app, environment={"MCPFLEET_SLOT": "1"})


async def test_a_test_that_fails_shows_what_was_logged() -> None:
    with pytest.raises(AssertionError) as failed:
        async with LocalFleet(app):
            raise AssertionError("a test's own")
    assert "snapshot changed" in failed.value.__notes__[0]
    assert "not ready" not in failed.value.__notes__[0], "the fleet's end is no news"


async def test_a_part_that_fails_is_told_at_the_end() -> None:
    fleet = LocalFleet(app)
    with pytest.raises(ValueError, match="why"):
        async with fleet:
            fleet.catalog.error = ValueError("why")


async def test_a_fleet_that_is_cancelled_while_it_starts_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    starting = asyncio.create_task(LocalFleet(app).__aenter__())
    await asyncio.sleep(0.05)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert asyncio.all_tasks() == before


async def test_what_needs_the_switch_says_so_on_nats() -> None:
    async with LocalFleet(app, nats=True) as fleet:
        with pytest.raises(RuntimeError, match="nats"):
            fleet.switch.freeze()
        with pytest.raises(RuntimeError, match="nats"):
            fleet.workers[0].cut()


async def test_a_failing_assertion_is_raised_by_itself_with_the_log_below_it() -> None:
    """The client's task groups would wrap it in groups of groups; its own cause stays."""
    cause = KeyError("why")
    with pytest.raises(AssertionError, match="two is not three") as failed:
        async with LocalFleet(App("plain", version="1.0.0")) as fleet, fleet.client():
            raise AssertionError("two is not three") from cause
    assert failed.value.__cause__ is cause
    assert failed.value.__notes__[0].startswith("the fleet's log:\n")


async def test_its_audit_lines_are_in_its_log_up_to_its_end_and_not_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with LocalFleet(app) as fleet, fleet.client() as client:
        await client.call_tool("add", {"left": 1, "right": 2})
    assert [(line["target"], line["outcome"]) for line in fleet.lines("audit")] == [("add", "ok")]
    assert "add" in fleet.logs()
    assert capsys.readouterr() == ("", "")


STRICT = """
import asyncio
from tests.unit.testing.test_local import LocalFleet, app

async def call():
    async with LocalFleet(app) as fleet, fleet.client() as client:
        await client.call_tool("add", {"left": 1, "right": 2})

asyncio.run(call())
"""


def test_it_ends_without_a_warning_where_python_looks_for_mistakes() -> None:
    """Unclosed sockets, files and databases are told at the interpreter's end, and slow callbacks in its loop."""
    strict = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", STRICT],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line for line in strict.stderr.splitlines() if not line.startswith("Executing <")]  # a slow machine
    assert (strict.returncode, lines) == (0, [])


def test_a_call_is_possible_soon_after_a_fleet_begins() -> None:
    """The fleet and its first call take at most 65 parses, which are 0.3 s here; the process has had a fleet before."""

    async def call() -> float:
        began = time.process_time()  # the store works in threads of its own
        async with LocalFleet(app) as fleet, fleet.client() as client:
            await client.call_tool("add", {"left": 1, "right": 2})
            return time.process_time() - began

    asyncio.run(call())
    assert parses(lambda: asyncio.run(call()), tries=4) < 65
