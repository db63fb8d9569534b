"""The short form of the sessions that come and go."""

from __future__ import annotations

import pytest

from tests.chaos.sessions import WRONG, soak


@pytest.mark.rule("D11")
@pytest.mark.timeout(120)
async def test_sessions_at_random_edges_are_told_what_is_right_and_leave_nothing() -> None:
    """L5, L7, L8, L13, M81: whichever edge dies; what was counted is where it began."""
    found = await soak(4.0, seed=7, pace=1.5, hands=14)
    assert [how for how in found.ended if how.startswith(WRONG)] == [], found.ended
    assert found.after == found.before, found
    assert found.after.is_idle
    assert found.after.megabytes < found.before.megabytes + 30, found
    assert found.ended["death of an edge"] + found.ended["drain of an edge"] >= 1
    done = ("chat", "order", "interview", "take back", "set level", "follow", "replace", "vanish", "end session")
    assert [what for what in done if not found.ended[what]] == [], found.ended
