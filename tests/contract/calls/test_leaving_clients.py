"""Clients that leave, and clients that do not read."""

from __future__ import annotations

import pytest

from mcpfleet.edge.transport.http_exchange import ClientStalled
from tests.contract.bus.fabric import Fabric, heard
from tests.contract.calls.edge_harness import edge_harness, text_of
from tests.kit.waiting import until


@pytest.mark.rule("D12")
async def test_a_client_that_leaves_cancels_its_call(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer()
        taken = await at.worker.call()
        at.worker.accept(taken)
        answering.exchange.leave()
        await answering.over()
        assert answering.outcome == "client_gone"
        assert (await at.worker.cancelled())[1].call == taken.id


@pytest.mark.rule("M15")
async def test_after_a_client_left_nothing_is_written_for_it(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer(token="t")
        taken = await at.worker.call()
        at.worker.report(taken, 1)
        await answering.exchange.events(1)
        answering.exchange.leave()
        await answering.over()
        written = len(answering.exchange.sent)
        at.worker.report(taken, 2)
        at.worker.finish(taken)
        await heard(at.worker.bus, at.edge)
        assert len(answering.exchange.sent) == written


@pytest.mark.rule("D12")
async def test_a_client_that_leaves_the_line_has_not_run_anything(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        at.worker.on_call = at.worker.busy
        answering = at.answer()
        await until(lambda: len(at.worker.taken) > 1)
        answering.exchange.leave()
        await answering.over()
        assert len(at.calls) == 0


@pytest.mark.rule("D12")
async def test_a_tool_that_outlives_its_client_goes_on(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer(outlives_client=True)
        taken = await at.worker.call()
        at.worker.accept(taken)
        answering.exchange.leave()
        await answering.over()
        assert (await at.worker.alive(at.edge, taken.id)).unwanted == ()
        assert at.worker.cancels == []
        at.worker.finish(taken)
        await until(lambda: len(at.calls) == 0)


async def test_a_client_that_does_not_read_is_cut_off_and_its_call_cancelled(fabric: Fabric) -> None:
    async with edge_harness(fabric, write_timeout=0.2) as at:
        answering = at.answer(token="t")
        answering.exchange.pause()
        taken = await at.worker.call()
        at.worker.report(taken, 1)
        await answering.over()
        assert isinstance(answering.error, ClientStalled)
        assert (await at.worker.cancelled())[1].call == taken.id


async def test_a_client_that_reads_slowly_is_sent_the_newest_reports(fabric: Fabric) -> None:
    async with edge_harness(fabric) as at:
        answering = at.answer(token="t")
        taken = await at.worker.call()
        answering.exchange.pause()
        for number in range(100):
            at.worker.report(taken, number)
        at.worker.finish(taken)
        await heard(at.worker.bus, at.edge)
        answering.exchange.go_on()
        await answering.over()
        *reports, end = answering.exchange.read_events()
        values = [report["params"]["progress"] for report in reports]
        assert len(values) <= 17, "16 that were kept, and one that was on its way"
        assert values == sorted(values)
        assert values[-1] == 99
        assert text_of(end) == "done"
