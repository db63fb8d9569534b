"""The short form of the ghosts: one pause of each part, each in a fleet of its own."""

from __future__ import annotations

import anyio
import pytest

from tests.chaos.callers import Told
from tests.chaos.ghosts import PARTS, Phase, haunted

SOON_DEAD = {"MCPFLEET_BUS_QUESTION_EVERY": "1", "MCPFLEET_BUS_DEAD_AFTER": "1", "MCPFLEET_BUS_RECONNECT_JITTER": "0.5"}
"""A link that stands still is noticed within the pause."""
SETTLE = 4.0
"""Seconds of load after the pause."""


@pytest.mark.timeout(120)
async def test_no_effect_is_left_by_a_call_that_was_told_not_to_have_run() -> None:
    """Invariant 6: whatever is paused, each call is told the truth, and the fleet serves again soon."""
    phases: list[Phase] = []

    async def pause(part: str) -> None:
        async with haunted(SOON_DEAD) as house:
            phases.append(await house.phase(part, house.paused(part), 2.5, 30.0, SETTLE))

    async with anyio.create_task_group() as tasks:
        for part in PARTS:
            tasks.start_soon(pause, part)
    assert {phase.name for phase in phases} == set(PARTS)
    for phase in phases:
        assert (phase.name, phase.ghosts, phase.doubled, phase.unclear) == (phase.name, 0, 0, ())
        assert phase.told[Told.RESULT] > 0
        assert phase.recovered < SETTLE - 0.5, phase
