"""The short form of the restarts: each way once, drains on one fleet and the rest on another."""

from __future__ import annotations

import anyio
import pytest

from tests.chaos.callers import Told
from tests.chaos.restarts import DRAINS, WAYS, Findings, lost_in_drains, restarts

KILLS = tuple(way for way in WAYS if way not in DRAINS)


@pytest.mark.timeout(120)
async def test_whatever_restarts_each_call_is_told_the_truth_and_a_drain_costs_none() -> None:
    founds: list[Findings] = []

    async def go_through(ways: tuple[str, ...]) -> None:
        founds.append(await restarts(0.0, rate=30.0, seed=7, ways=ways, settle=1.0))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(go_through, DRAINS)
        tasks.start_soon(go_through, KILLS)
    assert {way for found in founds for way in found.told} == set(WAYS)
    for found in founds:
        assert (found.ghosts, found.doubled, found.unclear) == (0, 0, set())
        assert lost_in_drains(found) == 0, found.told
        assert all(told[Told.RESULT] > 0 for told in found.told.values()), found.told
