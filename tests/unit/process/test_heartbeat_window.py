"""Which silence counts."""

from __future__ import annotations

from mcpfleet.process.lifecycle import HeartbeatWindow


def test_watching_grows_while_the_link_is_proven() -> None:
    window = HeartbeatWindow(longest_gap=5)
    assert [window.look(now, 0.0) for now in (10.0, 12.0, 14.0)] == [0.0, 2.0, 4.0]


def test_a_link_that_is_not_proven_starts_it_afresh() -> None:
    window = HeartbeatWindow(longest_gap=5)
    window.look(10.0, 0.0)
    assert window.look(12.0, None) == 0.0
    assert window.look(14.0, 13.0) == 0.0
    assert window.look(16.0, 13.0) == 2.0


def test_a_link_that_was_replaced_between_two_looks_starts_it_afresh() -> None:
    window = HeartbeatWindow(longest_gap=5)
    window.look(10.0, 0.0)
    window.look(12.0, 0.0)
    assert window.look(14.0, 13.5) == 0.5


def test_a_process_that_slept_starts_it_afresh_though_its_link_seems_proven() -> None:
    """Messages of workers meanwhile wait in a socket, and are not counted yet."""
    window = HeartbeatWindow(longest_gap=5)
    window.look(10.0, 0.0)
    assert window.look(40.0, 0.0) == 0.0
    assert window.look(42.0, 0.0) == 2.0


def test_a_store_that_did_not_answer_starts_it_afresh() -> None:
    window = HeartbeatWindow(longest_gap=5)
    window.look(10.0, 0.0)
    window.interrupt()
    assert window.look(12.0, 0.0) == 0.0
