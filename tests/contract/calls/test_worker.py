"""A worker as edges see it: what it takes, what it says meanwhile, and what it stops."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import anyio
import pytest

from mcpfleet.bus.errors import Busy, Expired
from mcpfleet.contracts.call import (
    AUTHORED_ERROR,
    WANTS_ACCEPTED,
    WANTS_PROGRESS,
    pool_cancel_subject,
)
from tests.contract.bus.fabric import Fabric, heard
from tests.contract.calls.worker_harness import POOL, PlayedEdge, worker_harness
from tests.kit.waiting import until

# -- taking ----------------------------------------------------------------------------------------------------------


async def test_a_call_is_answered_by_its_result_alone(fabric: Fabric) -> None:
    """A call that ends quickly needs no acceptance."""
    async with worker_harness(fabric) as at:
        at.place("echo", {"text": "hello"})
        end = await at.edge.said("result")
        assert json.loads(end.body)["content"][0]["text"] == "hello"
        assert at.edge.kinds() == ["result"]


@pytest.mark.rule("M24")
async def test_an_authored_error_says_so(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        at.place("refuse", {})
        assert (await at.edge.said("error")).header == AUTHORED_ERROR


async def test_a_call_that_said_nothing_for_a_while_is_accepted(fabric: Fabric) -> None:
    """Then its edge does not take it for lost, whether it runs or waits."""
    async with worker_harness(fabric, accepted_after=0.1, slots=1) as at:
        at.place("hold", {"name": "a"}, call="1")
        at.place("hold", {"name": "b"}, call="2")
        for call in ("1", "2"):
            accepted = await at.edge.said("accepted", call)
            assert accepted.header == f"1 {at.pool.process}"
        await anyio.sleep(0.3)
        assert at.edge.kinds("1") == ["accepted"], "once"


async def test_a_call_that_others_wait_behind_is_accepted_at_once(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        at.place("hold", {"name": "a"}, flags=WANTS_ACCEPTED)
        await at.edge.said("accepted")


async def test_beyond_slots_and_queue_a_worker_is_busy(fabric: Fabric) -> None:
    async with worker_harness(fabric, slots=1, queue=1) as at:
        for call in ("1", "2", "3"):
            at.place("hold", {"name": call}, call=call)
        assert isinstance(await at.edge.refused("3"), Busy)
        assert at.instruments.busy.read().points[0].value == 1
        at.application.release.set()
        await at.edge.said("result", "2")
        assert "3" not in at.application.started


async def test_a_call_that_waits_runs_when_a_slot_is_free(fabric: Fabric) -> None:
    async with worker_harness(fabric, slots=1, queue=5) as at:
        for call in ("1", "2", "3"):
            at.place("hold", {"name": call}, call=call)
        await at.running("1")
        assert at.application.started == ["1"]
        at.application.release.set()
        await at.edge.said("result", "3")
        assert at.application.started == ["1", "2", "3"]


def dated(seconds_ahead: float) -> str:
    return f"1 10000 {(time.time() + seconds_ahead) * 1000:.0f}"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(lambda: f"{dated(-60)} - 1 e1 -", id="old"),
        pytest.param(lambda: f"{dated(60)} - 1 e1 -", id="dated ahead"),
        pytest.param(lambda: f"{dated(0)} -", id="no call"),
        pytest.param(lambda: "nonsense", id="no line"),
    ],
)
async def test_a_call_that_is_too_old_is_expired_and_does_not_run(fabric: Fabric, line: Callable[[], str]) -> None:
    async with worker_harness(fabric) as at:
        at.place("echo", {"text": "x"}, line=line())
        assert isinstance(await at.edge.refused(), Expired)
        assert at.application.started == []


async def test_a_call_that_comes_twice_runs_once(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        for _ in range(3):
            at.place("hold", {"name": "a"})
        at.application.release.set()
        await at.edge.said("result")
        at.place("hold", {"name": "a"})
        await heard(at.edge.bus, at.pool)
        assert at.application.started == ["a"]
        assert at.edge.kinds() == ["result"]


async def test_equal_names_of_two_edges_are_two_calls(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at, fabric.buses("edge") as (second,):
        other = PlayedEdge(second)
        await other.listen()
        await heard(second)
        at.place("echo", {"text": "to the first"})
        other.place(at.application.app, "echo", {"text": "to the second"})
        assert b"first" in (await at.edge.said("result")).body
        assert b"second" in (await other.said("result")).body


# -- progress --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("M60")
async def test_a_few_reports_at_once_all_leave_before_the_end(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        at.place("count", {"steps": 3}, flags=WANTS_PROGRESS)
        await at.edge.said("result")
        assert at.edge.kinds() == ["progress"] * 3 + ["result"]


@pytest.mark.rule("P1")
async def test_without_the_flag_no_report_leaves(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        at.place("count", {"steps": 3})
        await at.edge.said("result")
        assert at.edge.kinds() == ["result"]


async def test_about_twenty_reports_of_a_burst_leave_and_the_newest(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        at.place("count", {"steps": 1000}, flags=WANTS_PROGRESS)
        await at.edge.said("result")
        reports = [json.loads(message.body)["progress"] for _, kind, message in at.edge.frames if kind == "progress"]
        assert 20 <= len(reports) <= 45
        assert reports == sorted(reports)
        assert reports[-1] == 999


# -- cancels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to_pool", [True, False], ids=["to the pool", "to the worker"])
async def test_a_cancelled_call_is_stopped_and_says_nothing_more(fabric: Fabric, to_pool: bool) -> None:
    async with worker_harness(fabric, slots=1) as at:
        at.place("hold", {"name": "a"})
        await at.running("a")
        at.edge.cancel(worker=None if to_pool else at.pool.process)
        await until(lambda: at.application.cancelled == ["a"], within=1)
        at.place("echo", {"text": "next"}, call="2")
        await at.edge.said("result", "2")
        assert at.edge.kinds("1") == []


async def test_a_cancel_that_overtakes_its_call_keeps_it_from_running(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        at.edge.cancel("1")
        await heard(at.edge.bus, at.pool)
        at.place("echo", {"text": "a"}, call="1")
        at.place("echo", {"text": "b"}, call="2")
        await at.edge.said("result", "2")
        assert at.application.started == ["b"]


async def test_a_cancel_of_a_call_that_waits_frees_its_place(fabric: Fabric) -> None:
    async with worker_harness(fabric, slots=1, queue=1) as at:
        at.place("hold", {"name": "1"}, call="1")
        at.place("hold", {"name": "2"}, call="2")
        at.edge.cancel("2")
        await heard(at.edge.bus, at.pool)
        at.place("hold", {"name": "3"}, call="3")
        at.application.release.set()
        await at.edge.said("result", "3")
        assert at.application.started == ["1", "3"]


async def test_a_cancel_after_the_end_changes_nothing(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        at.place("echo", {"text": "a"})
        await at.edge.said("result")
        at.edge.cancel()
        await heard(at.edge.bus, at.pool)
        at.place("echo", {"text": "b"}, call="2")
        await at.edge.said("result", "2")


async def test_a_malformed_cancel_is_logged_and_costs_nothing(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        at.edge.bus.publish(pool_cancel_subject(POOL), b"{")
        await until(lambda: fabric.lines("malformed cancel"))
        at.place("echo", {"text": "a"})
        await at.edge.said("result")
