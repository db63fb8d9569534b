"""The short form of a policy that changes over many streams."""

from __future__ import annotations

import pytest

from tests.chaos.policies import change


@pytest.mark.rule("X51", "X52")
@pytest.mark.timeout(120)
async def test_nothing_passes_the_fence_of_a_changed_policy_and_leases_end_the_streams() -> None:
    found = await change(200, lasts=6.0)
    assert (found.told, found.late) == (200, 0), found
    assert found.ended_after < 6.0 + 2.0, found
