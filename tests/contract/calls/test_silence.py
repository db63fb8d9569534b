"""An edge and silence, and the reports of workers about the calls that they hold."""

from __future__ import annotations

import time

import anyio

from mcpfleet.edge.calls.in_flight import End
from tests.contract.bus.fabric import Fabric
from tests.contract.calls.edge_harness import POOL, edge_harness, result
from tests.kit.waiting import until

# -- absence ---------------------------------------------------------------------------------------------------------


async def test_a_call_that_nobody_accepts_ends_uncertain_and_is_cancelled_in_its_pool(fabric: Fabric) -> None:
    async with edge_harness(fabric, unaccepted_after=0.2) as at:
        call = at.calls.place(at.order())
        await until(lambda: call.is_settled)
        assert call.end is End.UNACCEPTED
        subject, cancel = await at.worker.cancelled()
        assert (subject, cancel.edge, cancel.call) == (f"pool.{POOL}.cancel", at.edge.process, call.id)


async def test_progress_accepts_a_call_too(fabric: Fabric) -> None:
    """The first frame of any kind is the acceptance."""
    async with edge_harness(fabric, unaccepted_after=0.8) as at:
        call = at.calls.place(at.order())
        at.worker.report(await at.worker.call(), 1)
        await until(lambda: time.monotonic() - call.placed > 1.2)
        assert call.end is None


async def test_a_worker_that_falls_silent_is_lost_and_its_call_uncertain(fabric: Fabric) -> None:
    async with edge_harness(fabric, lost_after=0.5) as at:
        call, _ = await at.accepted()
        accepted = time.monotonic()
        await until(lambda: call.is_settled)
        assert call.end is End.LOST
        assert time.monotonic() - accepted > 0.4
        subject, cancel = await at.worker.cancelled()
        assert (subject, cancel.call) == (f"process.pool.{POOL}.{at.worker.name}.cancel", call.id)


async def test_a_worker_that_says_that_it_has_the_call_is_not_lost(fabric: Fabric) -> None:
    async with edge_harness(fabric, lost_after=0.8) as at:
        call, _ = await at.accepted()
        until_then = time.monotonic() + 1.2
        while time.monotonic() < until_then:
            await at.worker.alive(at.edge, call.id)
            await anyio.sleep(0.1)
        assert call.end is None


async def test_silence_counts_only_while_the_edges_own_link_is_proven(fabric: Fabric) -> None:
    async with edge_harness(fabric, lost_after=0.6) as at:
        call, taken = await at.accepted()
        await fabric.lose()
        await until(lambda: not at.edge.is_up)
        await anyio.sleep(0.9)  # longer than a worker may be silent
        assert call.end is None
        await fabric.start()
        with anyio.fail_after(5):
            await at.edge.wait_up()
            await at.worker.bus.wait_up()
        at.worker.finish(taken)
        await until(lambda: call.is_settled)
        assert call.end is End.RESULT


async def test_a_call_ends_by_its_deadline_whatever_it_reports(fabric: Fabric) -> None:
    """M59: progress moves no deadline."""
    async with edge_harness(fabric, lost_after=60) as at:
        call, taken = await at.accepted(lasts=1.0)
        while not call.is_settled:
            at.worker.report(taken, 1)
            await call.wait(0.1)
        assert call.end is End.OVERDUE
        assert (await at.worker.cancelled())[1].call == call.id
        assert 0.9 < time.monotonic() - call.placed < 30


# -- alive -----------------------------------------------------------------------------------------------------------


async def test_a_worker_is_told_which_calls_are_unwanted(fabric: Fabric) -> None:
    """A cancel that was lost is made good."""
    async with edge_harness(fabric) as at:
        wanted, _ = await at.accepted()
        released, _ = await at.accepted()
        at.calls.release(released)
        answer = await at.worker.alive(at.edge, wanted.id, released.id, "never")
        assert set(answer.unwanted) == {released.id, "never"}
        assert answer.missing == ()


async def test_a_worker_is_asked_for_the_end_of_a_call_that_it_does_not_list(fabric: Fabric) -> None:
    """Its end may have been lost with the link."""
    async with edge_harness(fabric) as at:
        call, taken = await at.accepted()
        assert (await at.worker.alive(at.edge)).missing == (call.id,)
        at.worker.finish(taken, "again")
        await until(lambda: call.is_settled)
        assert (call.end, call.body) == (End.RESULT, result("again"))


async def test_a_call_that_a_worker_does_not_list_twice_is_gone(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call, _ = await at.accepted()
        await at.worker.alive(at.edge)
        assert (await at.worker.alive(at.edge)).missing == ()
        assert call.end is End.LOST


async def test_a_call_that_is_listed_again_was_not_missed(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call, _ = await at.accepted()
        for _ in range(2):
            assert (await at.worker.alive(at.edge)).missing == (call.id,)
            assert (await at.worker.alive(at.edge, call.id)).missing == ()
        assert call.end is None


async def test_a_call_known_by_its_progress_alone_is_known_to_its_worker_by_alive(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call = at.calls.place(at.order())
        at.worker.report(await at.worker.call(), 1)
        await at.worker.alive(at.edge, call.id)
        assert call.worker == at.worker.name


async def test_another_workers_list_says_nothing_of_this_workers_calls(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call, _ = await at.accepted()
        for _ in range(3):
            assert (await at.worker.alive(at.edge, worker="f" * 16)).missing == ()
        assert call.end is None


async def test_another_pools_list_keeps_no_call_of_this_pool(fabric: Fabric) -> None:
    """Invariant 13."""
    async with edge_harness(fabric) as at, fabric.buses("pool-other") as (other,):
        call, _ = await at.accepted()
        body = b'{"worker":"%s","calls":["%s"]}' % (other.process.encode(), call.id.encode())
        reply = await other.request(f"edge.{at.edge.process}.alive.other", body, timeout=5)
        assert call.id.encode() in reply.body
        assert call.worker == at.worker.name


async def test_a_malformed_list_is_logged_and_costs_nothing(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        call, _ = await at.accepted()
        at.worker.bus.publish(f"edge.{at.edge.process}.alive.{POOL}", b'{"worker":5}')
        await until(lambda: fabric.lines("malformed alive"))
        assert call.end is None
