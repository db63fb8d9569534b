"""A worker's tasks over a real NATS: ends that are never dropped, losses that are ones, steps within their lease."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from mcpfleet.app import App, Context
from mcpfleet.bus.errors import Failed, Fault
from mcpfleet.contracts.pool_tasks import Settle, Settled, Stepped
from mcpfleet.contracts.tasks import Status
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.tasks.holdings import Holding, elapsed
from mcpfleet.worker.tasks.task_end import TaskEndWriter
from tests.contract.bus.fabric import Fabric
from tests.contract.calls.holder import TASK, Service, away, broken, holder
from tests.kit.waiting import until


class Works:
    """A task whose handler waits for the test, and then runs a step."""

    def __init__(self, *, is_plain: bool = False) -> None:
        self.app = App("works", version="1")
        self.runs: list[str] = []
        self.effects: list[int] = []
        self.cancelled = threading.Event()
        self.release = threading.Event()
        self.app.tool(task="required", name="work")(self.plain if is_plain else self.work)

    async def work(self, ctx: Context) -> str:
        self.runs.append("work")
        await ctx.progress(3, total=10)
        try:
            await until(self.release.is_set, within=20)
        except BaseException:
            self.cancelled.set()
            raise
        await ctx.step("effect", self.effect)
        return "done"

    def plain(self, ctx: Context) -> str:
        self.runs.append("plain")
        self.release.wait(20)
        ctx.sync.step("effect", self.plain_effect)
        return "done"

    async def effect(self) -> int:
        self.effects.append(1)
        return 1

    def plain_effect(self) -> int:
        self.effects.append(1)
        return 1


def after(times: int, refuse: Any, service: Service) -> Any:
    """Answer ends only after so many refusals."""

    def answer(_settle: Settle) -> Settled:
        if len(service.settles) <= times:
            refuse()
        return Settled()

    return answer


@pytest.mark.rule("K23")
@pytest.mark.parametrize("refuse", [broken, away])
async def test_an_end_is_offered_until_it_is_taken(fabric: Fabric, refuse: Any) -> None:
    """The handler has run: no mistake of the service may run it again."""
    works = Works()
    async with holder(fabric, works.app) as at:
        at.service.on_settle = after(3, refuse, at.service)
        works.release.set()
        await until(lambda: len(at.service.settles) == 4, within=10)
        await until(lambda: not len(at.actor._holdings), within=5)
    assert len({each.model_dump_json() for each in at.service.settles}) == 1
    assert works.runs == ["work"]
    assert at.losses == 0
    assert not fabric.lines("task end not written")


@pytest.mark.rule("K23")
async def test_an_end_outlasts_the_time_in_which_nothing_was_renewed(fabric: Fabric) -> None:
    works = Works()
    async with holder(fabric, works.app, task_drops=0.2) as at:
        at.service.on_settle = away
        works.release.set()
        await until(lambda: len(at.service.settles) > 0, within=5)
        at.service.on_extend = away
        await until(lambda: len(at.service.settles) >= 4, within=10)
        at.service.on_settle = lambda _: Settled()
        await until(lambda: not len(at.actor._holdings), within=10)
    assert at.losses == 0
    assert not fabric.lines("task end not written")


@pytest.mark.rule("K23")
async def test_an_end_that_is_refused_gives_way_to_a_failure(fabric: Fabric) -> None:
    """Nothing else would keep the handler from running again."""
    offered: list[Settle] = []

    def refuse(settle: Settle) -> Settled:
        offered.append(settle)
        if settle.status is Status.COMPLETED:
            raise Failed(Fault.CONTRACT, "settle: end: no")
        return Settled()

    works = Works()
    async with holder(fabric, works.app) as at:
        at.service.on_settle = refuse
        writer = TaskEndWriter(at.actor._writer._client, WorkerSettings(), fabric.logger, refused_for=0.2)
        holding = Holding(TASK, 1, "d" * 32, elapsed(), 10.0, TraceContext.fresh(sampled=False))
        with anyio.fail_after(10):
            await writer.write(holding, Settle(id=TASK, fence=1, status=Status.COMPLETED, end="{}"))
        works.release.set()
    assert offered[0].status is Status.COMPLETED
    assert "could not be kept" in str(next(each.end for each in offered if each.status is Status.FAILED))


@pytest.mark.rule("K25")
async def test_a_renewal_that_crosses_the_end_is_no_loss(fabric: Fabric) -> None:
    """Asked before the end was written, and answered after it: by then nobody holds the task."""
    works = Works()
    async with holder(fabric, works.app) as at:
        at.service.may_answer_extends = anyio.Event()
        at.service.on_extend = at.service.lose
        await until(lambda: len(at.service.extends) > 0, within=5)
        works.release.set()
        await until(lambda: not len(at.actor._holdings), within=5)
        answered = at.actor._renewal._answered
        at.service.may_answer_extends.set()
        with anyio.fail_after(10):
            await answered.wait()
    assert at.losses == 0
    assert len(at.service.settles) == 1


@pytest.mark.rule("K25")
async def test_a_renewal_that_is_answered_before_the_end_is_no_loss(fabric: Fabric) -> None:
    """Nobody holds the task between the write of its end and the answer."""
    works = Works()
    async with holder(fabric, works.app) as at:
        at.service.on_settle = away
        works.release.set()
        await until(lambda: len(at.service.settles) > 0, within=5)
        at.service.on_extend = at.service.lose
        await until(lambda: any(each.is_refused for each in at.actor._holdings), within=10)
        at.service.on_settle = lambda _: Settled()
        await until(lambda: not len(at.actor._holdings), within=10)
    assert at.losses == 0


@pytest.mark.rule("K25")
@pytest.mark.parametrize(("ended", "losses"), [(True, 0), (False, 1)])
async def test_a_step_that_crosses_its_holders_own_end_is_no_loss(fabric: Fabric, ended: bool, losses: int) -> None:
    works = Works()
    async with holder(fabric, works.app) as worker:
        worker.service.on_step = lambda _: Stepped(lost=True, ended=ended)
        works.release.set()
        await until(lambda: worker.service.steps)
        await until(lambda: not worker.actor.held_definitions())
        assert worker.losses == losses


@pytest.mark.rule("K25")
async def test_what_another_has_is_lost_and_its_run_ends(fabric: Fabric) -> None:
    works = Works()
    async with holder(fabric, works.app) as at:
        await until(lambda: works.runs == ["work"], within=5)
        at.service.on_extend = at.service.lose
        await until(lambda: not len(at.actor._holdings), within=5)
        assert works.cancelled.is_set()
    assert at.losses == 1
    assert at.service.settles == []


@pytest.mark.rule("K26")
@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("is_ours", [True, False])
async def test_a_step_waits_for_its_lease_to_be_confirmed(fabric: Fabric, is_plain: bool, is_ours: bool) -> None:
    """After an old renewal nobody knows who holds the task."""
    works = Works(is_plain=is_plain)
    async with holder(fabric, works.app, lease=0.6) as at:
        await until(lambda: bool(works.runs), within=5)
        at.service.on_extend = away
        [held] = at.actor._holdings
        await until(lambda: not held.is_sure, within=5)
        works.release.set()
        asked = len(at.service.extends)
        await until(lambda: len(at.service.extends) > asked + 1, within=5)
        assert works.effects == []
        at.service.on_extend = None if is_ours else at.service.lose
        await until(lambda: not len(at.actor._holdings), within=10)
    assert works.effects == ([1] if is_ours else [])
    assert [each.status for each in at.service.settles] == ([Status.COMPLETED] if is_ours else [])
    assert not fabric.lines("handler failed")


@pytest.mark.rule("K26")
@pytest.mark.parametrize("is_plain", [False, True])
async def test_a_run_of_an_old_claim_does_not_begin_before_it_is_confirmed(fabric: Fabric, is_plain: bool) -> None:
    works = Works(is_plain=is_plain)
    works.release.set()
    async with holder(fabric, works.app, lease=0.3) as at:
        at.service.may_answer_claims = anyio.Event()
        at.service.on_extend = at.service.lose
        await until(lambda: not at.service.has, within=5)
        await anyio.sleep(0.2)  # the claim is older than half of its lease by now
        at.service.may_answer_claims.set()
        await until(lambda: at.losses == 1, within=5)
        await until(lambda: not len(at.actor._holdings), within=5)
    assert works.runs == []
    assert at.service.settles == []


@pytest.mark.rule("K27")
async def test_an_end_tells_what_was_reported_last(fabric: Fabric) -> None:
    """Reports go with renewals, so this one may not have been written before."""
    works = Works()
    async with holder(fabric, works.app) as at:
        at.service.on_extend = away
        works.release.set()
        await until(lambda: len(at.service.settles) == 1, within=5)
        [settle] = at.service.settles
    assert (settle.message, settle.progress) == ("3 of 10", 3.0)


@pytest.mark.rule("K27")
async def test_a_number_that_is_too_large_for_a_double_can_be_reported(fabric: Fabric) -> None:
    app = App("works", version="1")

    @app.tool(task="required")
    async def work(ctx: Context) -> str:
        await ctx.progress(10**400, total=10**401)
        return "done"

    async with holder(fabric, app) as at:
        await until(lambda: len(at.service.settles) == 1, within=5)
        [settle] = at.service.settles
    assert settle.status is Status.COMPLETED
    assert 'isError":true' not in str(settle.end)
