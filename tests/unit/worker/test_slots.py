"""The slots that calls and tasks share."""

from __future__ import annotations

from mcpfleet.telemetry.instruments import WorkerInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.worker.slots import Slots


def slots(most: int) -> Slots:
    return Slots(most, WorkerInstruments(Metrics()))


def test_a_slot_is_free_until_it_is_taken_and_after_it_is_given_back() -> None:
    two = slots(2)
    two.take()
    assert (two.used, two.free) == (1, 1)
    two.give_back()
    assert (two.used, two.free) == (0, 2)


def test_claimed_tasks_may_take_more_than_there_are() -> None:
    """Calls may arrive while tasks are claimed; then no slot is free until both have ended."""
    one = slots(1)
    one.take()
    one.take()
    assert (one.used, one.free) == (2, 0)
    one.give_back()
    assert one.free == 0


def test_a_free_slot_is_offered_to_the_call_that_waits() -> None:
    one, offered = slots(1), list[int]()
    one.on_free = lambda: offered.append(one.free)
    one.take()
    one.give_back()
    assert offered == [1]
