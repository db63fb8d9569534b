"""How often a call may send its progress: 20 a second, and of those beyond it the newest."""

from __future__ import annotations

import pytest

from mcpfleet.worker.calls.table import ProgressRate


def sent(rate: ProgressRate, moments: list[float], *, tick: float = 0.1) -> list[bytes]:
    """Report at each moment, with the worker's timer in between, and end; returns the sent reports in order."""
    left: list[bytes] = []
    clock = 0.0
    for number, moment in enumerate(moments):
        while clock + tick <= moment:
            clock += tick
            left += [body] if (body := rate.due(clock)) else []
        left += [body] if (body := rate.offer(b"%d" % number, moment)) else []
    return left + ([last] if (last := rate.last()) else [])


@pytest.mark.rule("M60")
def test_three_reports_at_once_are_three() -> None:
    assert sent(ProgressRate(20, 0.0), [0.0, 0.0, 0.0]) == [b"0", b"1", b"2"]


@pytest.mark.rule("M60")
def test_three_reports_50_ms_apart_are_three() -> None:
    assert sent(ProgressRate(20, 0.0), [0.0, 0.05, 0.1]) == [b"0", b"1", b"2"]


def test_about_twenty_of_a_hundred_reports_at_once_are_sent_and_the_newest() -> None:
    left = sent(ProgressRate(20, 0.0), [0.0] * 100)
    assert 18 <= len(left) <= 22
    assert left[-1] == b"99"


def test_a_stream_of_reports_is_thinned_to_the_rate_in_order() -> None:
    left = sent(ProgressRate(20, 0.0), [number / 1000 for number in range(3000)])
    numbers = list(map(int, left))
    assert 60 <= len(left) <= 82, "three seconds at 20, and a full bucket"
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 2999


def test_a_report_that_waits_is_replaced_by_a_newer_one() -> None:
    rate = ProgressRate(1, 0.0)
    assert rate.offer(b"first", 0.0) == b"first"
    assert rate.offer(b"second", 0.1) is None
    assert rate.offer(b"third", 0.2) is None
    assert rate.due(0.5) is None
    assert rate.due(1.1) == b"third"
    assert rate.due(9.0) is None


def test_time_without_reports_fills_the_bucket_no_further() -> None:
    rate = ProgressRate(20, 0.0)
    assert len([1 for _ in range(100) if rate.offer(b"x", 3600.0)]) == 20


def test_a_call_that_ends_sends_what_waits_and_nothing_twice() -> None:
    rate = ProgressRate(1, 0.0)
    rate.offer(b"first", 0.0)
    rate.offer(b"second", 0.0)
    assert rate.last() == b"second"
    assert rate.last() is None


@pytest.mark.parametrize("per_second", [0.5, 0.1])
def test_a_rate_of_less_than_one_a_second_lets_reports_through(per_second: float) -> None:
    """The setting allows any rate above 0."""
    rate = ProgressRate(per_second, 0.0)
    assert rate.offer(b"first", 0.0) == b"first"
    assert rate.offer(b"second", 0.0) is None
    assert rate.due(0.9 / per_second) is None
    assert rate.due(1.1 / per_second) == b"second"
