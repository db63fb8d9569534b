"""The calls that a worker holds: what becomes of one that arrives, is cancelled, or ends."""

from __future__ import annotations

import pytest

from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.worker.calls.table import Held, Key, Placement, State, Table
from mcpfleet.worker.progress_rate import ProgressRate


def call(name: str, edge: str = "e1") -> Held:
    """The message of a call; each one that is made is another copy of it."""
    return Held(
        key=Key(edge, name),
        definition="d1",
        subject="pool.library.d1.call",
        body=b"{}",
        deadline=0.0,
        trace=TraceContext.fresh(sampled=False),
        wants_progress=False,
        progress=ProgressRate(20, 0.0),
    )


def table(slots: int = 1, queue: int = 1) -> Table:
    return Table(slots=slots, queue=queue)


def test_a_call_runs_while_there_is_a_slot_then_waits_then_is_refused() -> None:
    held = table(slots=2, queue=1)
    assert [held.take(call(name)) for name in "abcd"] == [Placement.RUN, Placement.RUN, Placement.QUEUE, Placement.BUSY]
    assert (len(held), held.running) == (3, 2)


def test_without_a_queue_a_full_worker_refuses_at_once() -> None:
    held = table(queue=0)
    assert [held.take(call(name)) for name in "ab"] == [Placement.RUN, Placement.BUSY]


def test_a_refused_call_is_not_run_by_a_doubled_message_and_its_slot_is_the_next_ones() -> None:
    """Its edge was told that it has not run, and places it again under another id (invariant 6)."""
    held = table(queue=0)
    running = call("a")
    held.take(running)
    held.take(call("b"))
    assert held.get(Key("e1", "b")) is None
    held.end(running)
    assert held.take(call("b")) is Placement.DROP
    assert held.take(call("c")) is Placement.RUN


def test_a_slot_that_is_freed_goes_to_the_call_that_waits_longest() -> None:
    held = table(slots=1, queue=2)
    first, second, third = call("a"), call("b"), call("c")
    for one in (first, second, third):
        held.take(one)
    assert held.end(first) is second
    assert second.state is State.RUNNING
    assert third.state is State.QUEUED
    assert held.end(second) is third
    assert held.end(third) is None
    assert (len(held), held.running) == (0, 0)


def test_calls_are_named_over_all_edges() -> None:
    held = table(slots=2)
    assert held.take(call("a", edge="e1")) is Placement.RUN
    assert held.take(call("a", edge="e2")) is Placement.RUN


@pytest.mark.parametrize("slots", [0, 1], ids=["waiting", "running"])
def test_a_doubled_call_is_dropped(slots: int) -> None:
    """NATS may deliver a message twice after a link was made anew; a second arrival is known by its id."""
    held = table(slots=slots, queue=2)
    held.take(call("a"))
    assert held.take(call("a")) is Placement.DROP
    assert len(held) == 1


def test_a_cancel_that_overtakes_its_call_drops_it() -> None:
    held = table()
    assert held.cancel(Key("e1", "a")) is None
    assert held.take(call("a")) is Placement.DROP
    assert len(held) == 0


def test_a_cancelled_call_never_runs_however_often_it_comes() -> None:
    """Invariant 6: its edge may have told a client that it did not run."""
    held = table()
    held.cancel(Key("e1", "a"))
    assert [held.take(call("a")) for _ in range(3)] == [Placement.DROP] * 3


def test_a_cancel_of_a_waiting_call_forgets_it_at_once() -> None:
    held = table(slots=1, queue=1)
    running, waiting = call("a"), call("b")
    held.take(running)
    held.take(waiting)
    assert held.cancel(waiting.key) is None
    assert held.get(waiting.key) is None
    assert held.take(call("c")) is Placement.QUEUE, "its place is free"
    assert held.take(call("b")) is Placement.DROP
    following = held.end(running)
    assert following is not None
    assert following.key == Key("e1", "c")


def test_p8_a_cancel_of_a_running_call_keeps_its_slot_until_it_ends() -> None:
    held = table(slots=1, queue=0)
    running = call("a")
    held.take(running)
    assert held.cancel(running.key) is running
    assert running.is_cancelled
    assert held.running == 1
    assert held.take(call("b")) is Placement.BUSY
    held.end(running)
    assert held.take(call("c")) is Placement.RUN


def test_a_second_cancel_of_a_running_call_is_harmless() -> None:
    held = table()
    running = call("a")
    held.take(running)
    held.cancel(running.key)
    held.cancel(running.key)
    assert held.end(running) is None
    assert held.running == 0


def test_a_cancelled_call_that_ended_is_not_run_again_when_it_comes_twice() -> None:
    held = table()
    running = call("a")
    held.take(running)
    held.cancel(running.key)
    held.end(running)
    assert [held.take(call("a")) for _ in range(2)] == [Placement.DROP] * 2


def test_cancels_of_unknown_calls_are_remembered_within_a_bound() -> None:
    """Invariant 7: the oldest are forgotten first."""
    held = table(slots=5000)
    for number in range(3000):
        held.cancel(Key("e1", str(number)))
    assert held.take(call("2999")) is Placement.DROP
    assert held.take(call("0")) is Placement.RUN


def test_all_lists_what_is_held_running_or_waiting() -> None:
    held = table(slots=1, queue=1)
    for name in "abc":
        held.take(call(name))
    assert {one.key.call for one in held.all()} == {"a", "b"}
