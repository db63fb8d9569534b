"""An edge and the frames of its calls, or their absence."""

from __future__ import annotations

import time

import pytest

from mcpfleet.bus import header
from mcpfleet.bus.errors import Busy, Expired, NoResponders, Unavailable
from mcpfleet.contracts.call import AUTHORED_ERROR, FrameKind, frame_subject
from mcpfleet.edge.calls.in_flight import End
from mcpfleet.telemetry.trace import TraceContext
from tests.contract.bus.fabric import Fabric, heard
from tests.contract.calls.edge_harness import POOL, edge_harness, result
from tests.kit.waiting import until

# -- placing ---------------------------------------------------------------------------------------------------------


async def test_an_order_reaches_a_worker_with_its_body_its_time_and_its_trace(fabric: Fabric) -> None:
    trace = TraceContext.fresh(sampled=True)
    async with edge_harness(fabric) as at:
        call = at.calls.place(at.order(body=b'{"arguments":{}}', trace=trace, flags="p", lasts=3.0))
        taken = await at.worker.call()
        assert taken.message.body == b'{"arguments":{}}'
        assert (taken.id, taken.edge, taken.flags) == (call.id, at.edge.process, "p")
        assert 2 < taken.sent.left <= 3
        assert taken.sent.trace == trace


async def test_every_placing_has_a_name_of_its_own(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        order = at.order()
        assert at.calls.place(order).id != at.calls.place(order).id


async def test_without_a_link_an_order_is_not_placed_and_leaves_nothing(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        await fabric.lose()
        await until(lambda: not at.edge.is_up)
        with pytest.raises(Unavailable):
            at.calls.place(at.order())
        assert len(at.calls) == 0


# -- ends ------------------------------------------------------------------------------------------------------------


async def test_a_result_ends_a_call(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call, taken = await at.accepted()
        assert (call.worker, call.end, call.is_settled) == (at.worker.name, None, False)
        at.worker.finish(taken)
        await until(lambda: call.is_settled)
        assert (call.end, call.body) == (End.RESULT, result("done"))


async def test_a_result_may_be_the_first_that_is_heard(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call = at.calls.place(at.order())
        at.worker.finish(await at.worker.call())
        await until(lambda: call.is_settled)
        assert call.end is End.RESULT


@pytest.mark.rule("M24")
@pytest.mark.parametrize(("line", "status"), [(AUTHORED_ERROR, 400), (None, 200), ("1 later", 200)])
async def test_an_error_that_the_application_chose_is_400(fabric: Fabric, line: str | None, status: int) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer()
        at.worker.frame(await at.worker.call(), FrameKind.ERROR, b'{"code":-1,"message":"x"}', line)
        await answering.over()
        exchange = answering.exchange
        assert (exchange.status, exchange.json["error"]) == (status, {"code": -1, "message": "x"})


async def test_a_worker_that_is_busy_has_not_run_the_call(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call = at.calls.place(at.order())
        at.worker.busy(await at.worker.call())
        await until(lambda: call.is_settled)
        assert isinstance(call.refusal, Busy)
        assert call.end is None


async def test_a_worker_for_which_the_call_is_too_old_has_not_run_it(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call = at.calls.place(at.order())
        taken = await at.worker.call()
        at.worker.bus.respond(taken.message, b"", header.expired())
        await until(lambda: call.is_settled)
        assert isinstance(call.refusal, Expired)


async def test_where_nobody_hears_the_definition_the_call_has_not_run(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call = at.calls.place(at.order(definition="unknown"))
        await until(lambda: call.is_settled)
        assert isinstance(call.refusal, NoResponders)


async def test_a_second_end_of_a_call_is_dropped(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call, taken = await at.accepted()
        at.worker.finish(taken, "first")
        at.worker.finish(taken, "second")
        at.worker.frame(taken, FrameKind.ERROR, b'{"code":1,"message":"third"}')
        await heard(at.worker.bus, at.edge)
        assert (call.end, call.body) == (End.RESULT, result("first"))


async def test_frames_after_a_refusal_are_dropped(fabric: Fabric) -> None:
    """A call that was told as not run stays so."""
    async with edge_harness(fabric) as at:
        call = at.calls.place(at.order())
        taken = await at.worker.call()
        at.worker.busy(taken)
        at.worker.finish(taken)
        await heard(at.worker.bus, at.edge)
        assert call.refusal is not None
        assert call.end is None


@pytest.mark.rule("P3")
async def test_progress_after_the_end_is_dropped(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call, taken = await at.accepted()
        at.worker.finish(taken)
        at.worker.report(taken, 1)
        await heard(at.worker.bus, at.edge)
        assert not call.notices


async def test_frames_of_a_call_that_nobody_waits_for_are_dropped(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call, taken = await at.accepted()
        at.calls.release(call)
        at.worker.finish(taken)
        await heard(at.worker.bus, at.edge)
        assert call.end is None
        assert len(at.calls) == 0


async def test_frames_of_a_pool_that_was_not_asked_are_dropped(fabric: Fabric) -> None:
    """Invariant 13: NATS lets a pool send its own frames alone, and a call's name is easily guessed."""
    async with edge_harness(fabric) as at, fabric.buses("pool-other") as (other,):
        call, taken = await at.accepted()
        other.publish(frame_subject(at.edge.process, "other", call.id, FrameKind.RESULT), result("forged"))
        await heard(other, at.edge)
        assert call.end is None
        at.worker.finish(taken)
        await until(lambda: call.is_settled)
        assert call.body == result("done")


@pytest.mark.parametrize("kind", ["nonsense", "result.x", "alive"])
async def test_frames_of_an_unknown_kind_are_ignored(fabric: Fabric, kind: str) -> None:
    """A newer worker may send more kinds."""
    async with edge_harness(fabric) as at:
        call, taken = await at.accepted()
        at.worker.bus.publish(f"edge.{taken.edge}.frames.{POOL}.{taken.id}.{kind}", b"")
        await heard(at.worker.bus, at.edge)
        assert not call.is_settled


async def test_whoever_speaks_first_of_a_call_says_who_it_is(fabric: Fabric) -> None:
    """An operator is told which worker was lost, also where it never said `accepted`."""
    async with edge_harness(fabric) as at:
        call = at.calls.place(at.order())
        at.worker.frame(await at.worker.call(), FrameKind.PROGRESS, b'{"progress":1}', f"1 {at.worker.name}")
        await until(lambda: call.notices)
        assert call.worker == at.worker.name


async def test_progress_is_kept_up_to_a_bound_and_the_newest_wins(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call, taken = await at.accepted()
        for number in range(40):
            at.worker.report(taken, number)
        await heard(at.worker.bus, at.edge)
        assert [body for _, body in call.notices] == [b'{"progress":%d}' % number for number in range(24, 40)]


async def test_a_wait_ends_with_news_or_with_its_time(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call, taken = await at.accepted()
        assert await call.wait(0.1), "it was accepted since the last wait"
        began = time.monotonic()
        assert not await call.wait(0.1)
        assert time.monotonic() - began >= 0.1
        at.worker.report(taken, 1)
        assert await call.wait(5)


# -- leaving ---------------------------------------------------------------------------------------------------------


async def test_a_call_that_is_released_before_it_is_accepted_is_cancelled_in_its_pool(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call = at.calls.place(at.order())
        at.calls.release(call)
        assert (await at.worker.cancelled())[0] == f"pool.{POOL}.cancel"
        assert len(at.calls) == 0


async def test_a_call_that_is_released_later_is_cancelled_at_its_worker(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call, _ = await at.accepted()
        at.calls.release(call)
        assert (await at.worker.cancelled())[0] == f"process.pool.{POOL}.{at.worker.name}.cancel"


async def test_a_call_that_has_ended_is_not_cancelled(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call, taken = await at.accepted()
        at.worker.finish(taken)
        await until(lambda: call.is_settled)
        at.calls.release(call)
        at.calls.release(call)
        await heard(at.edge, at.worker.bus)
        assert at.worker.cancels == []
        assert len(at.calls) == 0


@pytest.mark.rule("D12")
async def test_a_call_that_outlives_its_client_is_not_cancelled_and_is_still_wanted(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call, taken = await at.accepted(outlives_client=True)
        at.calls.release(call)
        assert (await at.worker.alive(at.edge, call.id)).unwanted == ()
        assert at.worker.cancels == []
        at.worker.finish(taken)
        await until(lambda: len(at.calls) == 0)
