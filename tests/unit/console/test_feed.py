"""A console hears a small fleet always, and a large one while somebody looks and 15 minutes longer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpfleet.bus.bus import Bus
from mcpfleet.console.feed import KEPT, MOST_UNWATCHED, TIDY, ConsoleFeed
from mcpfleet.console.history import ToolKey
from mcpfleet.contracts.stats import ALL_SUBJECTS, EVERY, Sender, Stats, service_stats_subject
from mcpfleet.contracts.stats import Role as Service
from mcpfleet.process.logs import logger
from mcpfleet.process.settings import ProcessSettings
from tests.contract.bus.fabric import MemoryFabric, living
from tests.kit.clock import Clock
from tests.kit.waiting import until
from tests.unit.console.samples import ended, says

OWN = Sender("edge", "", "0" * 16)


@asynccontextmanager
async def feeding(folder: Path) -> AsyncIterator[tuple[ConsoleFeed, Bus, Bus]]:
    """A feed that runs, its bus, and the bus of another edge."""
    fabric = MemoryFabric(folder, ProcessSettings())
    async with living(fabric), fabric.buses("edge", "edge") as (bus, other), anyio.create_task_group() as tasks:
        feed = ConsoleFeed(bus, OWN, jaeger="", log=logger("edge", "0" * 16))
        tasks.start_soon(feed.run)
        await until(lambda: hears(bus))
        yield feed, bus, other
        tasks.cancel_scope.cancel()


def hears(bus: Bus) -> bool:
    return any(each.subject == ALL_SUBJECTS for each in bus.subscriptions)


def speak(bus: Bus, process: str, stats: Stats) -> None:
    bus.publish(service_stats_subject(Service.EDGE, process), stats.model_dump_json().encode())


def drawn(feed: ConsoleFeed) -> Any:
    return json.loads(feed.drawn())


async def test_what_was_called_before_a_page_opens_is_in_its_charts(tmp_path: Path, clock: Clock) -> None:
    async with feeding(tmp_path) as (feed, bus, _other):
        for _ in range(30):
            feed.hear_own(says(calls=(ended(0.1),)))
            await clock.move(EVERY)
        assert feed.enter()
        found = drawn(feed)
        rates = [each for each in found["charts"]["rate"] if each]
        assert len(rates) >= 4
        assert rates == pytest.approx([0.5] * len(rates), rel=0.05)
        assert [each["tool"] for each in found["tools"]] == ["search"]
        assert json.loads(feed.drawn(ToolKey("tools/call", "search")))["found"]["charts"]["p95"][-1] is not None
        assert hears(bus)


async def test_a_large_fleet_is_heard_while_a_page_is_open_and_15_minutes_longer(tmp_path: Path, clock: Clock) -> None:
    async with feeding(tmp_path) as (feed, bus, other):

        async def all_speak() -> None:
            for number in range(MOST_UNWATCHED + 1):
                speak(other, f"{number + 1:016x}", says())
                await anyio.lowlevel.checkpoint()

        await all_speak()
        await clock.move(TIDY + 1)
        await until(lambda: not hears(bus))
        assert drawn(feed)["nodes"] == []
        assert feed.enter()
        await until(lambda: hears(bus))
        await all_speak()
        await clock.move(1)
        assert len(drawn(feed)["nodes"]) == MOST_UNWATCHED + 1
        await clock.move(TIDY)
        feed.leave()
        await clock.move(KEPT - 1)
        assert hears(bus)
        await clock.move(TIDY + 1)
        await until(lambda: not hears(bus))
