"""Calls that wait for room in a pool: bounded, in their order, one of them asking."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import anyio
import pytest

from mcpfleet.contracts.call import WANTS_ACCEPTED, FrameKind
from mcpfleet.edge.calls.in_flight import Call, End, Order
from mcpfleet.wire.errors import Rejection, unknown_method
from tests.contract.bus.fabric import Fabric, heard
from tests.contract.calls.edge_harness import EdgeHarness, Taken, edge_harness
from tests.kit.waiting import until


class Waiting:
    """A call in line, in a task of its own."""

    def __init__(self, at: EdgeHarness, make_order: Callable[[], Order] | None = None) -> None:
        self.call: Call | None = None
        self.rejection: Rejection | None = None
        self.scope = anyio.CancelScope()
        self.is_over = False
        self._at = at
        self._make_order = make_order or functools.partial(at.order)
        at.tasks.start_soon(self._wait)

    async def _wait(self) -> None:
        with self.scope:
            try:
                self.call = await self._at.queue.wait_for_room(self._make_order)
            except Rejection as rejection:
                self.rejection = rejection
        self.is_over = True

    async def over(self) -> None:
        await until(lambda: self.is_over, within=8)


def queued(at: EdgeHarness) -> float:
    return at.instruments.queued.read().points[0].value


async def in_line(at: EdgeHarness, count: int) -> list[Waiting]:
    """So many calls, in this order."""
    waiting = []
    for number in range(count):
        waiting.append(Waiting(at))
        await until(lambda number=number: queued(at) > number)  # type: ignore[misc]  # mypy infers no default
    return waiting


class Pool:
    """A worker with so many slots, which it frees when the test says so."""

    def __init__(self, at: EdgeHarness, slots: int) -> None:
        self.slots = slots
        self.held: list[Taken] = []
        self.refused = 0
        self._worker = at.worker
        at.worker.on_call = self._take

    def _take(self, taken: Taken) -> None:
        if len(self.held) < self.slots:
            self.held.append(taken)
            self._worker.accept(taken)
        else:
            self.refused += 1
            self._worker.busy(taken)

    def free(self) -> None:
        """End the call that it has held the longest."""
        self._worker.finish(self.held.pop(0))


async def test_where_nobody_waits_an_order_is_placed_at_once(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call = at.queue.place(at.order())
        assert call is not None
        taken = await at.worker.call()
        assert (taken.id, taken.flags) == (call.id, "-")


async def test_behind_others_an_order_is_not_placed(fabric: Fabric) -> None:
    """First come, first served."""
    async with edge_harness(fabric) as at:
        Pool(at, slots=0)
        await in_line(at, 1)
        assert at.queue.place(at.order()) is None
        assert at.queue.place(at.order(pool="other")) is not None, "a full pool holds up no other"


async def test_without_a_link_an_order_is_not_placed(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        await fabric.lose()
        await until(lambda: not at.edge.is_up)
        assert at.queue.place(at.order()) is None


async def test_one_who_waits_is_taken_when_there_is_room_and_the_worker_says_so_at_once(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        pool = Pool(at, slots=0)
        [waiting] = await in_line(at, 1)
        await until(lambda: pool.refused)
        pool.slots = 1
        await waiting.over()
        assert waiting.call is not None
        assert waiting.call.worker == at.worker.name
        assert WANTS_ACCEPTED in pool.held[0].flags
        assert queued(at) == 0


async def test_those_who_wait_are_taken_in_their_order(fabric: Fabric) -> None:
    async with edge_harness(fabric, probe_min=0.05, probe_max=0.05) as at:
        pool = Pool(at, slots=0)
        waiting = await in_line(at, 5)
        pool.slots = 5
        for one in waiting:
            await one.over()
        placed = [one.call.id for one in waiting if one.call is not None]
        assert [taken.id for taken in pool.held] == placed


async def test_a_call_that_ends_lets_the_next_try_without_a_pause(fabric: Fabric) -> None:
    """Its slot is free; and the others wait on."""
    async with edge_harness(fabric, probe_min=60.0, probe_max=60.0) as at:
        pool = Pool(at, slots=1)
        running = at.calls.place(at.order())
        await until(lambda: running.worker)
        waiting = await in_line(at, 2)
        pool.free()
        await until(lambda: waiting[0].is_over)
        assert waiting[0].call is not None
        assert not waiting[1].is_over
        assert pool.refused == 0


async def test_only_one_of_those_who_wait_asks_a_full_pool(fabric: Fabric) -> None:
    async with edge_harness(fabric, probe_min=0.1, probe_max=0.1, queue_wait=0.6) as at:
        pool = Pool(at, slots=0)
        waiting = await in_line(at, 20)
        for one in waiting:
            await one.over()
        assert 3 <= pool.refused <= 7, "one question each tenth of a second, however many wait"


@pytest.mark.rule("D4", "invariant 7")
async def test_after_a_bounded_wait_the_answer_is_503_with_a_delay(fabric: Fabric) -> None:
    async with edge_harness(fabric, queue_wait=0.3) as at:
        Pool(at, slots=0)
        began = time.monotonic()
        waiting = Waiting(at)
        await waiting.over()
        assert time.monotonic() - began >= 0.3
        assert waiting.rejection is not None
        assert (waiting.rejection.status, waiting.rejection.code) == (503, -32603)
        assert 1 <= int(waiting.rejection.headers["Retry-After"]) <= 3
        assert (len(at.calls), queued(at)) == (0, 0)


async def test_more_than_may_wait_are_503_at_once(fabric: Fabric) -> None:
    async with edge_harness(fabric, queue_size=2, queue_wait=60) as at:
        Pool(at, slots=0)
        await in_line(at, 2)
        third = Waiting(at)
        await third.over()
        assert third.rejection is not None
        assert third.rejection.status == 503


async def test_a_pool_without_any_worker_is_waited_for_likewise(fabric: Fabric) -> None:
    async with edge_harness(fabric, queue_wait=0.3) as at:
        waiting = Waiting(at, functools.partial(at.order, pool="other"))
        await waiting.over()
        assert waiting.rejection is not None
        assert waiting.rejection.status == 503


async def test_one_who_leaves_the_line_lets_the_next_be_first(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        pool = Pool(at, slots=0)
        first, second = await in_line(at, 2)
        first.scope.cancel()
        await first.over()
        assert queued(at) == 1
        pool.slots = 1
        await second.over()
        assert second.call is not None
        assert [taken.id for taken in pool.held] == [second.call.id]


async def test_one_who_leaves_while_it_is_asking_cancels_what_it_asked(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        [waiting] = await in_line(at, 1)
        taken = await at.worker.call()  # which does not answer
        waiting.scope.cancel()
        await waiting.over()
        assert (await at.worker.cancelled())[1].call == taken.id
        assert (len(at.calls), queued(at)) == (0, 0)


async def test_a_call_that_may_have_been_taken_is_never_told_that_it_did_not_run(fabric: Fabric) -> None:
    """Its patience is over, but its last try was sent and has no answer yet."""
    async with edge_harness(fabric, queue_wait=0.2, probe_min=0.05, probe_max=0.05) as at:
        waiting = Waiting(at)
        taken = await at.worker.call()
        await anyio.sleep(0.3)
        assert not waiting.is_over
        at.worker.accept(taken)
        await waiting.over()
        assert waiting.call is not None
        assert waiting.call.id == taken.id


async def test_a_try_that_nobody_answers_is_uncertain(fabric: Fabric) -> None:
    async with edge_harness(fabric, queue_wait=0.2, unaccepted_after=0.2, probe_min=0.05, probe_max=0.05) as at:
        waiting = Waiting(at)
        await waiting.over()
        assert waiting.call is not None
        assert waiting.call.end is End.UNACCEPTED


async def test_a_try_that_nobody_answers_does_not_hold_up_the_line(fabric: Fabric) -> None:
    """After a restart of NATS a group may still name a worker's former connection, which swallows what it is sent."""
    async with edge_harness(fabric, unaccepted_after=60, probe_min=0.05, probe_max=0.05) as at:
        swallowed: list[Taken] = []
        at.worker.on_call = lambda taken: swallowed.append(taken) if not swallowed else at.worker.accept(taken)
        first, second, third = await in_line(at, 3)
        for waiting in (second, third):
            await waiting.over()
            assert waiting.call is not None
        assert not first.is_over


async def test_a_try_that_is_taken_lets_the_next_try_without_a_pause(fabric: Fabric) -> None:
    async with edge_harness(fabric, probe_min=2.0, probe_max=2.0, queue_wait=60) as at:
        pool = Pool(at, 0)
        waiting = await in_line(at, 20)
        pool.slots = 20
        began = time.monotonic()
        for each in waiting:
            await each.over()
        assert time.monotonic() - began < 15  # twenty pauses would be forty seconds


async def test_what_came_with_the_acceptance_is_news_to_whoever_reads_the_call(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        at.worker.on_call = at.worker.finish
        waiting = Waiting(at)
        await waiting.over()
        assert waiting.call is not None
        assert await waiting.call.wait(5)
        assert waiting.call.end is End.RESULT


async def test_each_try_is_made_of_what_exists_then(fabric: Fabric) -> None:
    """A rollout may replace the definition while a call waits for its workers."""
    definitions = iter(["gone", "gone", "d1", "d1", "d1"])
    async with edge_harness(fabric, probe_min=0.1, probe_max=0.1) as at:
        waiting = Waiting(at, lambda: at.order(definition=next(definitions)))
        at.worker.accept(await at.worker.call())
        await waiting.over()
        assert waiting.call is not None
        assert waiting.call.order.definition == "d1"


async def test_a_target_that_goes_while_its_call_waits_is_told_as_gone(fabric: Fabric) -> None:
    orders = 0
    async with edge_harness(fabric, probe_min=0.1, probe_max=0.1) as at:
        Pool(at, slots=0)

        def make_order() -> Order:
            nonlocal orders
            orders += 1
            if orders > 2:
                raise unknown_method()
            return at.order()

        waiting = Waiting(at, make_order)
        await waiting.over()
        assert waiting.rejection is not None
        assert waiting.rejection.status == 404
        assert queued(at) == 0


async def test_arguments_that_are_too_large_are_told_so_and_not_tried_again(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        huge = b"x" * (fabric.settings.bus_max_payload + 1)
        with pytest.raises(Rejection, match="too large") as raised:
            at.queue.place(at.order(body=huge))
        assert (raised.value.status, raised.value.code) == (400, -32602)


async def test_arguments_that_are_too_large_are_told_so_behind_others_too(fabric: Fabric) -> None:
    async with edge_harness(fabric, queue_wait=1.0, probe_min=0.1, probe_max=0.1) as at:
        pool = Pool(at, slots=0)
        huge = b"x" * (fabric.settings.bus_max_payload + 1)
        [first] = await in_line(at, 1)
        waiting = Waiting(at, functools.partial(at.order, body=huge))
        pool.slots = 1
        await first.over()
        await waiting.over()
        assert waiting.rejection is not None
        assert waiting.rejection.code == -32602


async def test_how_long_calls_waited_is_measured(fabric: Fabric) -> None:
    async with edge_harness(fabric, queue_wait=0.2) as at:
        Pool(at, slots=0)
        await Waiting(at).over()
        [point] = at.instruments.queue_wait.read().points
        assert point.labels == ("library",)
        assert point.value == pytest.approx(0.2, abs=0.2)


async def test_a_refusal_that_comes_late_changes_nothing(fabric: Fabric) -> None:
    """A worker that accepted cannot take it back."""
    async with edge_harness(fabric) as at:
        call, taken = await at.accepted()
        at.worker.busy(taken)
        at.worker.frame(taken, FrameKind.PROGRESS, b'{"progress":1}')
        await heard(at.worker.bus, at.edge)
        assert call.refusal is None
        assert call.notices
