"""The URIs that edges watch, and the union that the application hears."""

from __future__ import annotations

import pytest

from mcpfleet.contracts.subscriptions import PART, Watched, watch_report
from mcpfleet.worker.watched import WatchedSets

ONE, TWO = "1" * 16, "2" * 16


def sets(lasts: float = 45.0, most: int = 1_000) -> WatchedSets:
    return WatchedSets(lasts=lasts, most=most)


def said(edge: str, number: int, *uris: str, part: int = 0, parts: int = 1) -> Watched:
    return Watched(edge=edge, number=number, part=part, parts=parts, uris=uris)


def test_the_sets_of_several_edges_are_united_and_a_newer_one_takes_the_place() -> None:
    known = sets()
    known.hear(said(ONE, 1, "a:1", "a:2"), 0.0)
    known.hear(said(TWO, 1, "a:2", "a:3"), 0.0)
    assert known.union() == {"a:1", "a:2", "a:3"}
    known.hear(said(ONE, 2), 1.0)
    assert known.union() == {"a:2", "a:3"}


def test_a_set_that_comes_late_or_twice_changes_nothing() -> None:
    known = sets()
    for message in (said(ONE, 2, "a:2"), said(ONE, 1, "a:1"), said(ONE, 2, "a:2")):
        known.hear(message, 0.0)
    assert known.union() == {"a:2"}


def test_an_edge_that_is_silent_for_its_time_watches_nothing() -> None:
    known = sets(lasts=45.0)
    known.hear(said(ONE, 1, "a:1"), 0.0)
    known.hear(said(TWO, 1, "a:2"), 30.0)
    assert not known.forget_silent(44.9)
    assert known.forget_silent(45.0)
    assert known.union() == {"a:2"}


@pytest.mark.rule("D13")
def test_silence_without_a_link_does_not_count() -> None:
    known = sets(lasts=45.0)
    known.hear(said(ONE, 1, "a:1"), 0.0)
    known.spare(100.0)
    assert not known.forget_silent(144.0)
    assert known.forget_silent(145.0)


def test_a_large_set_holds_once_all_its_parts_are_there_and_not_before() -> None:
    uris = {f"a:{number}{'x' * 1_000}" for number in range(600)}
    messages = watch_report(ONE, 2, uris)
    assert len(messages) > 2
    assert all(sum(map(len, message.uris)) <= PART for message in messages)
    known = sets(most=1 << 20)
    known.hear(said(ONE, 1, "a:old"), 0.0)
    for message in reversed(messages):
        assert known.union() == {"a:old"}
        assert known.hear(message, 0.0)
    assert known.union() == uris


def test_a_lost_part_leaves_the_former_set_and_the_next_whole_one_counts() -> None:
    known = sets()
    known.hear(said(ONE, 1, "a:1"), 0.0)
    known.hear(said(ONE, 2, "a:2", part=0, parts=2), 0.0)
    known.hear(said(ONE, 3, "a:4", part=1, parts=2), 0.0)
    assert known.union() == {"a:1"}
    known.hear(said(ONE, 3, "a:3", part=0, parts=2), 0.0)
    assert known.union() == {"a:3", "a:4"}


def test_a_set_that_makes_all_too_large_is_not_taken() -> None:
    known = sets(most=10)
    assert known.hear(said(ONE, 1, "a:12345"), 0.0)
    assert not known.hear(said(TWO, 1, "a:1234"), 0.0)
    assert known.hear(said(ONE, 2, "a:12345678"), 0.0)
    assert known.union() == {"a:12345678"}


def test_an_empty_set_is_stated_too() -> None:
    assert watch_report(ONE, 1, []) == [said(ONE, 1)]
