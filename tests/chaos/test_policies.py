"""The short form of a policy that changes over many streams."""

from __future__ import annotations

import pytest

from tests.chaos.policies import change


@pytest.mark.rule("X51", "X52")
@pytest.mark.timeout(120)
async def test_nothing_passes_the_fence_of_a_changed_policy_and_leases_end_the_streams() -> None:
    found = await change(100, lasts=10.0)
    assert (found.told, found.late) == (100, 0), found
    assert found.fenced_after < 5.0, found
    assert found.ended_after < 10.0 + 5.0, found
