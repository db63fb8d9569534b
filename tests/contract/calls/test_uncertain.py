"""Calls of which nobody knows whether they ran: what the model reads (D3, I3)."""

from __future__ import annotations

import pytest

from tests.contract.bus.fabric import Fabric
from tests.contract.calls.edge_harness import assert_is_uncertain, edge_harness, text_of


@pytest.mark.rule("I3")
async def test_a_call_that_nobody_confirmed_is_told_to_the_model_as_uncertain(fabric: Fabric) -> None:
    """D3: it is a tool result, so that the model reads how to find out."""
    async with edge_harness(fabric, unaccepted_after=0.1) as at:
        answering = at.answer()
        await answering.over()
        assert_is_uncertain(answering)
        assert answering.outcome == "uncertain_unaccepted"


@pytest.mark.rule("I3")
async def test_a_call_whose_worker_fell_silent_is_uncertain(fabric: Fabric) -> None:
    async with edge_harness(fabric, lost_after=0.2) as at:
        answering = at.answer()
        at.worker.accept(await at.worker.call())
        await answering.over()
        assert_is_uncertain(answering)


@pytest.mark.rule("I3")
async def test_a_call_that_was_not_finished_in_time_is_uncertain(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer(lasts=0.2)
        at.worker.accept(await at.worker.call())
        await answering.over()
        assert_is_uncertain(answering)
        await at.worker.cancelled()


@pytest.mark.rule("D17")
async def test_an_uncertain_stream_ends_with_its_result_too(fabric: Fabric) -> None:
    async with edge_harness(fabric, lost_after=0.2) as at:
        answering = at.answer(token="t")
        at.worker.report(await at.worker.call(), 1)
        await answering.over()
        assert "uncertain" in text_of((await answering.exchange.events(2))[1])
        assert answering.exchange.is_over


@pytest.mark.rule("D17")
async def test_what_still_runs_when_its_edge_leaves_is_uncertain_and_cancelled(fabric: Fabric) -> None:
    """A stream that just breaks off would say nothing."""
    async with edge_harness(fabric) as at:
        answering = at.answer(token="t")
        at.worker.report(await at.worker.call(), 1)
        await answering.exchange.events(1)
        at.calls.end_all()
        await answering.over()
        assert "uncertain" in text_of((await answering.exchange.events(2))[1])
        assert answering.exchange.is_over
        await at.worker.cancelled()
