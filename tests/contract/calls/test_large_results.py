"""Results that are too large for a frame: fetched from their worker when there is room."""

from __future__ import annotations

import json

import pytest

from mcpfleet.contracts.call import FrameKind
from tests.contract.bus.fabric import Fabric, heard
from tests.contract.calls.edge_harness import assert_is_uncertain, edge_harness, large, text_of
from tests.kit.waiting import until


async def test_a_large_result_is_fetched_from_its_worker(fabric: Fabric) -> None:
    text = "x" * 1_000_000
    async with edge_harness(fabric) as at:
        answering = at.answer()
        large(at, await at.worker.call(), text)
        await answering.over()
        assert text_of(answering.exchange.json) == text
        assert at.budget.used == 0


async def test_a_large_result_ends_a_stream_too(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer(token="t")
        taken = await at.worker.call()
        at.worker.report(taken, 1)
        large(at, taken, "large")
        await answering.over()
        assert text_of((await answering.exchange.events(2))[1]) == "large"


async def test_a_result_that_its_worker_does_not_have_any_more_is_uncertain(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer()
        at.worker.frame(await at.worker.call(), FrameKind.RESULT, b"", f"1 {at.worker.name} 100")
        await answering.over()
        assert_is_uncertain(answering)
        assert answering.outcome == "uncertain_result_lost"


async def test_a_result_of_another_size_than_was_told_is_not_passed_on(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer()
        large(at, await at.worker.call(), "large", size=5)
        await answering.over()
        assert_is_uncertain(answering)
        assert at.budget.used == 0


async def test_a_large_result_that_cannot_be_spliced_is_an_internal_error(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer()
        taken = await at.worker.call()
        at.worker.results[taken.id] = b"[]"
        at.worker.frame(taken, FrameKind.RESULT, b"", f"1 {at.worker.name} 2")
        await answering.over()
        assert answering.exchange.json["error"]["code"] == -32603


async def test_large_results_wait_for_room_in_turn(fabric: Fabric) -> None:
    """One that is larger than all the room takes all of it."""
    async with edge_harness(fabric, result_room=1000) as at:
        answers = [at.answer() for _ in range(5)]
        for number in range(5):
            large(at, await at.worker.call(number), "x" * 2000)
        for answering in answers:
            await answering.over()
            assert len(text_of(json.loads(answering.exchange.body))) == 2000
        assert at.budget.used == 0


@pytest.mark.rule("N11")
async def test_a_large_result_waits_for_room_no_longer_than_its_worker_keeps_it(fabric: Fabric) -> None:
    async with edge_harness(fabric, result_room=1000, result_wait=0.1) as at, at.budget.hold(1000, within=1):
        answering = at.answer()
        large(at, await at.worker.call(), "x" * 2000)
        await answering.over()
        assert_is_uncertain(answering)
        assert answering.outcome == "uncertain_result_lost"


async def test_a_client_that_leaves_while_its_result_is_fetched_gives_the_room_back(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        at.worker.is_deaf = True
        answering = at.answer()
        at.worker.frame(await at.worker.call(), FrameKind.RESULT, b"", f"1 {at.worker.name} 1000")
        await until(lambda: at.budget.used)
        answering.exchange.leave()
        await answering.over()
        assert at.budget.used == 0


@pytest.mark.parametrize("line", ["1 a b c", "1 > 100", "1 a.b 100", "1 w 99999999999999999999", "1 w -5", "1 w ٣"])
async def test_a_forged_place_of_a_result_costs_the_edge_no_link(fabric: Fabric, line: str) -> None:
    """Invariant 13."""
    async with edge_harness(fabric) as at:
        answering = at.answer()
        at.worker.frame(await at.worker.call(), FrameKind.RESULT, b"", line)
        await answering.over()
        await heard(at.edge)
        assert answering.error is None
    assert fabric.lines("link lost") == []
