"""A worker and its edges over time: who is heard of, what is kept, and how a worker leaves."""

from __future__ import annotations

import anyio
import pytest

from mcpfleet.bus.errors import NoResponders
from mcpfleet.contracts.call import (
    Alive,
    AliveAnswer,
    Pull,
    pull_subject,
)
from tests.contract.bus.fabric import Fabric, heard
from tests.contract.calls.worker_harness import POOL, worker_harness
from tests.kit.waiting import until

# -- alive -----------------------------------------------------------------------------------------------------------


async def test_a_worker_tells_each_edge_which_calls_it_holds(fabric: Fabric) -> None:
    async with worker_harness(fabric, alive_interval=0.2, slots=1) as at:
        at.place("hold", {"name": "a"}, call="1")
        at.place("hold", {"name": "b"}, call="2")
        await until(lambda: at.edge.alive and len(at.edge.alive[-1].calls) == 2)
        assert at.edge.alive[-1] == Alive(worker=at.pool.process, calls=("1", "2"))


async def test_a_call_that_is_unwanted_is_cancelled(fabric: Fabric) -> None:
    """This makes good a cancel that was lost."""
    async with worker_harness(fabric, alive_interval=0.2) as at:
        at.edge.answer = AliveAnswer(unwanted=("1",))
        at.place("hold", {"name": "a"})
        await until(lambda: at.application.cancelled == ["a"])


async def test_an_end_that_an_edge_missed_is_sent_again(fabric: Fabric) -> None:
    async with worker_harness(fabric, alive_interval=0.2, end_kept=5.0) as at:
        at.edge.answer = AliveAnswer(missing=("1",))
        at.place("echo", {"text": "a"})
        first = await at.edge.said("result", times=1)
        second = await at.edge.said("result", times=2)
        assert first.body == second.body
        assert at.application.started == ["a"]


async def test_an_end_is_kept_for_a_time(fabric: Fabric) -> None:
    """After that the worker says nothing more to the edge."""
    async with worker_harness(fabric, alive_interval=0.1, end_kept=0.2) as at:
        at.place("echo", {"text": "a"})
        await at.edge.said("result")
        await until(lambda: at.edge.alive)
        await until(lambda: len(at.actor._ends) == 0)
        before = len(at.edge.alive)
        await anyio.sleep(0.3)
        assert len(at.edge.alive) <= before + 1


async def test_calls_of_an_edge_that_is_gone_are_cancelled(fabric: Fabric) -> None:
    async with worker_harness(fabric, alive_interval=0.1, lost_after=0.4) as at:
        at.edge.answer = None
        at.place("hold", {"name": "a"})
        await until(lambda: at.application.cancelled == ["a"])
    assert fabric.lines("edge lost")


async def test_an_edge_that_is_heard_again_in_time_loses_nothing(fabric: Fabric) -> None:
    async with worker_harness(fabric, alive_interval=0.1, lost_after=0.8) as at:
        at.place("hold", {"name": "a"})
        for _ in range(2):
            at.edge.answer = None
            heard_so_far = len(at.edge.alive)
            await until(lambda before=heard_so_far: len(at.edge.alive) > before)  # type: ignore[misc]  # a default
            at.edge.answer = AliveAnswer()
            heard_so_far = len(at.edge.alive)
            await until(lambda before=heard_so_far: len(at.edge.alive) > before)  # type: ignore[misc]  # a default
        assert at.application.cancelled == []


async def test_silence_counts_only_while_the_workers_own_link_is_proven(fabric: Fabric) -> None:
    """An outage of NATS cancels nothing."""
    async with worker_harness(fabric, alive_interval=0.1, lost_after=0.5) as at:
        at.place("hold", {"name": "a"})
        await until(lambda: at.edge.alive)
        await fabric.lose()
        await until(lambda: not at.pool.is_up)
        await anyio.sleep(0.7)  # longer than an edge may be silent
        await fabric.start()
        with anyio.fail_after(5):
            await at.edge.bus.wait_up()
            await at.pool.wait_up()
        at.application.release.set()
        await at.edge.said("result")
        assert at.application.cancelled == []


# -- large results ---------------------------------------------------------------------------------------------------


async def test_a_large_result_stays_with_its_worker_until_it_is_fetched(fabric: Fabric) -> None:
    text = "x" * 10_000
    async with worker_harness(fabric, inline_result=1000) as at:
        at.place("echo", {"text": text})
        end = await at.edge.said("result")
        assert end.body == b""
        worker, size = (end.header or "").split(" ")[1:]
        pull = Pull(edge=at.edge.bus.process, call="1").model_dump_json().encode()
        fetched = (await at.edge.bus.request(pull_subject(POOL, worker), pull, timeout=5)).body
        assert len(fetched) == int(size)
        assert text.encode() in fetched


async def test_a_result_that_is_not_kept_cannot_be_fetched(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        pull = Pull(edge=at.edge.bus.process, call="never").model_dump_json().encode()
        with pytest.raises(Exception, match="not kept"):
            await at.edge.bus.request(pull_subject(POOL, at.pool.process), pull, timeout=5)


# -- the end ---------------------------------------------------------------------------------------------------------


async def test_a_worker_that_drains_finishes_what_it_holds_and_takes_nothing_new(fabric: Fabric) -> None:
    drained = anyio.Event()
    async with worker_harness(fabric, slots=1) as at, anyio.create_task_group() as tasks:

        async def drain() -> None:
            await at.actor.drain()
            drained.set()

        at.place("hold", {"name": "1"}, call="1")
        at.place("hold", {"name": "2"}, call="2")
        await at.running("1")
        tasks.start_soon(drain)
        await until(lambda: fabric.lines("stopped taking calls"))
        at.place("hold", {"name": "3"}, call="3")
        assert isinstance(await at.edge.refused("3"), NoResponders)
        too_early = drained.is_set()
        at.application.release.set()
        await at.edge.said("result", "1")
        await at.edge.said("result", "2")
        with anyio.fail_after(5):
            await drained.wait()
    assert not too_early
    assert at.application.started == ["1", "2"]


async def test_a_worker_whose_loop_is_blocked_takes_calls_again_when_it_runs(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        await at.actor.hear_blocked(True)
        at.place("echo", {"text": "meanwhile"}, call="1")
        assert isinstance(await at.edge.refused("1"), NoResponders)
        await at.actor.hear_blocked(False)
        await heard(at.pool)
        at.place("echo", {"text": "again"}, call="2")
        await at.edge.said("result", "2")


async def test_a_worker_that_drains_does_not_come_back_when_its_loop_runs_again(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        await at.actor.hear_blocked(True)
        await at.actor.drain()
        await at.actor.hear_blocked(False)
        at.place("echo", {"text": "late"}, call="1")
        assert isinstance(await at.edge.refused("1"), NoResponders)


async def test_a_worker_without_calls_drains_at_once(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        with anyio.fail_after(5):
            await at.actor.drain()


async def test_slots_are_counted(fabric: Fabric) -> None:
    async with worker_harness(fabric, slots=3) as at:
        at.place("hold", {"name": "a"})
        await at.running("a")
        used = [gauge.read().points[0].value for gauge in (at.instruments.slots, at.instruments.slots_used)]
        at.application.release.set()
        await at.edge.said("result")
        await until(lambda: at.instruments.slots_used.read().points[0].value == 0)
    assert used == [3, 1]
