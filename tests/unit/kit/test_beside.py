"""How a benchmark decides whether one tree is slower than another."""

from __future__ import annotations

import random

import pytest

from tests.benchmarks.beside import NOT_SLOWER, interval_of


def test_the_interval_of_twenty_rounds_is_from_the_sixth_to_the_fifteenth() -> None:
    """The true median is between them with a probability of 95.9 %, and between their neighbours with 88.5 %."""
    interval = interval_of([*range(20, 0, -1)])
    assert (interval.low, interval.median, interval.high) == (6, 10.5, 15)


def test_the_interval_holds_the_true_median_in_95_of_100_tries() -> None:
    """However the ratios are distributed: here, most of them lie close, and some very far off."""
    dice = random.Random(1)
    tries = [interval_of([dice.paretovariate(0.5) for _ in range(20)]) for _ in range(2_000)]
    right = sum(each.low <= 4 <= each.high for each in tries)
    assert 0.95 <= right / len(tries) <= 0.97


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([1.0] * 20, "not slower"),
        ([NOT_SLOWER] * 20, "not slower"),
        ([0.9] * 20, "slower"),
        ([0.9, 1.1] * 10, "not decided: measure more rounds"),
        ([0.9] * 5 + [1.0] * 15, "not slower"),
        ([0.9] * 6 + [1.0] * 14, "not decided: measure more rounds"),
    ],
)
def test_the_interval_decides_what_is_slower(ratios: list[float], verdict: str) -> None:
    """Its lower end decides; where the whole is below the bound, the tree is slower."""
    assert interval_of(ratios).verdict == verdict


def test_few_ratios_give_an_interval_as_wide_as_they_are() -> None:
    """Nothing is left out where nothing may be."""
    assert (interval_of([1.0]).low, interval_of([1.0]).high) == (1.0, 1.0)
    assert (interval_of([3.0, 1.0, 2.0]).low, interval_of([3.0, 1.0, 2.0]).high) == (1.0, 3.0)
