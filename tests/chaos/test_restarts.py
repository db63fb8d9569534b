"""The short form of the restarts: each way once."""

from __future__ import annotations

import pytest

from tests.chaos.callers import Told
from tests.chaos.restarts import lost_in_drains, restarts


@pytest.mark.timeout(120)
async def test_whatever_restarts_each_call_is_told_the_truth_and_a_drain_costs_none() -> None:
    found = await restarts(0.0, rate=40.0, seed=7)
    assert (found.ghosts, found.doubled, found.unclear) == (0, 0, set())
    assert lost_in_drains(found) == 0, found.told
    assert all(told[Told.RESULT] > 0 for told in found.told.values()), found.told
