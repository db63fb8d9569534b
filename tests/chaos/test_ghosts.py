"""The short form of the ghosts: one pause of each part."""

from __future__ import annotations

import pytest

from tests.chaos.callers import Told
from tests.chaos.ghosts import PARTS, haunted


@pytest.mark.timeout(120)
async def test_no_effect_is_left_by_a_call_that_was_told_not_to_have_run() -> None:
    """Invariant 6: whatever is paused, each call is told the truth, and the fleet serves again within 5 s."""
    async with haunted() as house:
        phases = [await house.phase(part, house.paused(part), 3.0, 40.0) for part in PARTS]
    for phase in phases:
        assert (phase.name, phase.ghosts, phase.doubled, phase.unclear) == (phase.name, 0, 0, ())
        assert phase.told[Told.RESULT] > 0
        assert phase.recovered < 5.0, phase
