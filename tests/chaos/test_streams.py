"""The short form of the streams that come and go."""

from __future__ import annotations

import pytest

from tests.chaos.streams import soak


@pytest.mark.timeout(120)
async def test_streams_that_open_die_and_close_leave_nothing_behind() -> None:
    """Streams, counts in the store, subscriptions, tasks and memory are where they began."""
    found = await soak(5.0, seed=7, pace=3.0, hands=16)
    assert found.after == found.before, found
    assert (found.after.streams, found.after.counted) == (0, 0)
    assert found.after.megabytes < found.before.megabytes + 20, found
    assert found.ended["death of an edge"] >= 1
    assert found.ended["left"] > 50
