"""The newest ends of calls, kept for a while so that they can be sent again."""

from __future__ import annotations

from mcpfleet.contracts.call import FrameKind
from mcpfleet.worker.calls.recent_ends import RecentEnds
from mcpfleet.worker.work import CallKey, Ended


def end(call: str, size: int = 1, edge: str = "e1") -> Ended:
    return Ended(CallKey(edge, call), FrameKind.RESULT, b"x" * size)


def keep(ends: RecentEnds, kept: Ended, now: float) -> None:
    assert isinstance(kept.key, CallKey)
    ends.keep(kept.key, kept, now)


def test_an_end_is_found_by_its_call() -> None:
    ends = RecentEnds(100)
    kept = end("a")
    keep(ends, kept, 0.0)
    assert ends.get(CallKey("e1", "a")) is kept
    assert ends.get(CallKey("e2", "a")) is None
    assert ends.get(CallKey("e1", "b")) is None


def test_ends_are_kept_for_a_time() -> None:
    ends = RecentEnds(100)
    for moment, call in enumerate("abc"):
        keep(ends, end(call), float(moment))
    ends.forget_before(1.0, proven_since=0.0)
    assert [ends.get(CallKey("e1", call)) is not None for call in "abc"] == [False, True, True]
    ends.forget_before(9.0, proven_since=0.0)
    assert len(ends) == 0


def test_an_outage_does_not_count() -> None:
    """Nobody could ask meanwhile."""
    ends = RecentEnds(100)
    keep(ends, end("a"), 0.0)
    ends.forget_before(5.0, proven_since=6.0)
    assert len(ends) == 1
    ends.forget_before(6.5, proven_since=6.0)
    assert len(ends) == 0


def test_ends_are_kept_within_a_number_of_bytes_and_the_oldest_go_first() -> None:
    ends = RecentEnds(10)
    for call in "abc":
        keep(ends, end(call, size=4), 0.0)
    assert [ends.get(CallKey("e1", call)) is not None for call in "abc"] == [False, True, True]


def test_an_end_that_is_larger_than_all_the_room_costs_the_others_nothing() -> None:
    ends = RecentEnds(10)
    keep(ends, end("a", size=4), 0.0)
    keep(ends, end("b", size=11), 0.0)
    assert ends.get(CallKey("e1", "b")) is None
    assert ends.get(CallKey("e1", "a")) is not None


def test_a_second_end_of_a_call_is_dropped() -> None:
    """The edge may have heard the first; and its bytes count once."""
    ends = RecentEnds(10)
    first = end("a", size=6)
    keep(ends, first, 0.0)
    keep(ends, end("a", size=6), 1.0)
    assert ends.get(CallKey("e1", "a")) is first
    keep(ends, end("b", size=4), 2.0)
    assert len(ends) == 2


def test_room_that_was_given_back_can_be_used_again() -> None:
    ends = RecentEnds(10)
    keep(ends, end("a", size=10), 0.0)
    ends.forget_before(1.0, proven_since=0.0)
    keep(ends, end("b", size=10), 1.0)
    assert ends.get(CallKey("e1", "b")) is not None


def test_the_edges_that_may_still_ask_are_known() -> None:
    ends = RecentEnds(10)
    keep(ends, end("a", edge="e1"), 0.0)
    keep(ends, end("b", edge="e2"), 1.0)
    assert ends.edges() == {"e1", "e2"}
    ends.forget_before(1.0, proven_since=0.0)
    assert ends.edges() == {"e2"}


def test_a_result_that_is_forgotten_or_not_wanted_is_waited_for_no_longer() -> None:
    """Nobody drains for a result that nobody can fetch."""
    ends = RecentEnds(100)
    for moment, call in enumerate("abc"):
        keep(ends, end(call), float(moment))
        ends.await_fetch(CallKey("e1", call))
    ends.await_fetch(CallKey("e1", "never kept"))
    ends.fetched(CallKey("e1", "a"))
    ends.forget_before(2.0, proven_since=0.0)
    assert not ends.are_fetched
    keep(ends, end("d", size=100), 4.0)
    assert ends.are_fetched
