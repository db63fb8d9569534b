"""The short form of the soak."""

from __future__ import annotations

from tests.chaos.soak import soak


async def test_what_is_cancelled_leaves_nothing_behind_and_everybody_still_hears() -> None:
    """Cancel scopes around every operation of the bus, while NATS pauses for as long as kills a link and shorter."""
    found = await soak(6.0, seed=7, pace=2.5)
    before, after = found.before, found.after
    assert (after.tasks, after.ours, after.clients) == (before.tasks, before.ours, before.clients), found
    assert after.megabytes < before.megabytes + 20, found
    assert found.ended["pause of NATS"] >= 2
