"""Pauses between tries."""

from __future__ import annotations

from itertools import islice

from mcpfleet.process.retry import pauses


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    assert list(islice(pauses(0.1, 0.5), 5)) == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_no_pause_is_longer_than_the_longest() -> None:
    assert list(islice(pauses(2.0, 0.5), 2)) == [0.5, 0.5]
