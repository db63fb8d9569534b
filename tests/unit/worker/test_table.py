"""The calls that a worker holds: what becomes of one that arrives, is cancelled, or ends."""

from __future__ import annotations

import pytest

from mcpfleet.telemetry.instruments import WorkerInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.worker.calls.table import HeldCall, Placement, Table
from mcpfleet.worker.slots import Slots
from mcpfleet.worker.work import CallKey


def call(name: str, edge: str = "e1") -> HeldCall:
    """A call as it arrives; each one that is made is another copy of the message."""
    return HeldCall(
        key=CallKey(edge, name),
        definition="d1",
        subject="pool.library.d1.call",
        body=b"{}",
        deadline=0.0,
        trace=TraceContext.fresh(sampled=False),
        wants_progress=False,
    )


def table(slots: int = 1, queue: int = 1) -> Table:
    return Table(Slots(slots, WorkerInstruments(Metrics())), queue=queue)


def end(held: Table, running: HeldCall) -> HeldCall | None:
    """End a call; returns the call that takes its slot."""
    held.end(running)
    return held.next()


def used(held: Table) -> int:
    """The slots in use."""
    return held._slots.used


def test_a_call_runs_while_there_is_a_slot_then_waits_then_is_refused() -> None:
    held = table(slots=2, queue=1)
    assert [held.place(call(name)) for name in "abcd"] == [
        Placement.RUN,
        Placement.RUN,
        Placement.QUEUE,
        Placement.BUSY,
    ]
    assert (len(held), used(held)) == (3, 2)


def test_without_a_queue_a_full_worker_refuses_at_once() -> None:
    held = table(queue=0)
    assert [held.place(call(name)) for name in "ab"] == [Placement.RUN, Placement.BUSY]


def test_a_doubled_message_of_a_refused_call_does_not_run_it() -> None:
    """Its edge was told that it has not run, and places it again under another id (invariant 6)."""
    held = table(queue=0)
    running = call("a")
    held.place(running)
    held.place(call("b"))
    assert held.get(CallKey("e1", "b")) is None
    held.end(running)
    assert held.place(call("b")) is Placement.DROP
    assert held.place(call("c")) is Placement.RUN


def test_a_slot_that_is_freed_goes_to_the_call_that_waits_longest() -> None:
    held = table(slots=1, queue=2)
    first, second, third = call("a"), call("b"), call("c")
    for one in (first, second, third):
        held.place(one)
    assert end(held, first) is second
    assert second.is_running
    assert not third.is_running
    assert end(held, second) is third
    assert end(held, third) is None
    assert (len(held), used(held)) == (0, 0)


def test_calls_are_named_over_all_edges() -> None:
    held = table(slots=2)
    assert held.place(call("a", edge="e1")) is Placement.RUN
    assert held.place(call("a", edge="e2")) is Placement.RUN


@pytest.mark.parametrize("slots", [0, 1], ids=["waiting", "running"])
def test_a_doubled_call_is_dropped(slots: int) -> None:
    """NATS may deliver a message twice after a link was made anew; a second arrival is known by its id."""
    held = table(slots=slots, queue=2)
    held.place(call("a"))
    assert held.place(call("a")) is Placement.DROP
    assert len(held) == 1


def test_a_cancel_that_overtakes_its_call_drops_it() -> None:
    held = table()
    assert held.cancel(CallKey("e1", "a")) is None
    assert held.place(call("a")) is Placement.DROP
    assert len(held) == 0


def test_a_cancelled_call_never_runs_however_often_it_comes() -> None:
    """Invariant 6: its edge may have told a client that it did not run."""
    held = table()
    held.cancel(CallKey("e1", "a"))
    assert [held.place(call("a")) for _ in range(3)] == [Placement.DROP] * 3


def test_a_cancel_of_a_waiting_call_forgets_it_at_once() -> None:
    held = table(slots=1, queue=1)
    running, waiting = call("a"), call("b")
    held.place(running)
    held.place(waiting)
    assert held.cancel(waiting.key) is None
    assert held.get(waiting.key) is None
    assert held.place(call("c")) is Placement.QUEUE, "its place is free"
    assert held.place(call("b")) is Placement.DROP
    following = end(held, running)
    assert following is not None
    assert following.key == CallKey("e1", "c")


@pytest.mark.rule("P8")
def test_a_cancel_of_a_running_call_keeps_its_slot_until_it_ends() -> None:
    held = table(slots=1, queue=0)
    running = call("a")
    held.place(running)
    assert held.cancel(running.key) is running
    assert running.is_cancelled
    assert used(held) == 1
    assert held.place(call("b")) is Placement.BUSY
    held.end(running)
    assert held.place(call("c")) is Placement.RUN


def test_a_second_cancel_of_a_running_call_is_harmless() -> None:
    held = table()
    running = call("a")
    held.place(running)
    held.cancel(running.key)
    held.cancel(running.key)
    assert end(held, running) is None
    assert used(held) == 0


def test_a_cancelled_call_that_ended_is_not_run_again_when_it_comes_twice() -> None:
    held = table()
    running = call("a")
    held.place(running)
    held.cancel(running.key)
    held.end(running)
    assert [held.place(call("a")) for _ in range(2)] == [Placement.DROP] * 2


def test_cancels_of_unknown_calls_are_remembered_within_a_bound() -> None:
    """Invariant 7: the oldest are forgotten first."""
    held = table(slots=5000)
    for number in range(3000):
        held.cancel(CallKey("e1", str(number)))
    assert held.place(call("2999")) is Placement.DROP
    assert held.place(call("0")) is Placement.RUN


def test_all_lists_what_is_held_running_or_waiting() -> None:
    held = table(slots=1, queue=1)
    for name in "abc":
        held.place(call(name))
    assert {one.key.call for one in held.all()} == {"a", "b"}
