"""A service's typed handlers: what they are asked, what is answered when they fail, and how many run."""

# Longer than 400 lines: one class, and each of its answers is shown over memory and over NATS.

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcpfleet.bus import header
from mcpfleet.bus.actor import Actor, RpcContext
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import Busy, Expired, Failed, Fault, NoResponders, Unanswered, Unavailable, UnreadableAnswer
from mcpfleet.bus.header import ending
from mcpfleet.bus.port import Incoming
from mcpfleet.bus.rpc import Rpc, ask
from mcpfleet.contracts.catalog import ANNOUNCE, SNAPSHOT, Announce, Announced, Snapshot, SnapshotAnswer, SnapshotWanted
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.telemetry.spans import SpanKind, Tracer
from mcpfleet.telemetry.trace import TraceContext
from tests.contract.bus.conftest import QUICK
from tests.contract.bus.fabric import Fabric, by_edges, heard
from tests.kit.waiting import until

WANTED = SnapshotWanted(endpoint="mcp", known=7)
ONCE = Rpc(SNAPSHOT.subject, SnapshotWanted, SnapshotAnswer, asked_by="edge", repeat=False)
"""The same question, asked once: silence and refusals are seen as they are."""


@pytest.fixture
def settings() -> ProcessSettings:
    return QUICK.model_copy(update={"bus_max_payload": 100_000})


@asynccontextmanager
async def acting(fabric: Fabric, bus: Bus, concurrency: int = 64) -> AsyncIterator[Actor]:
    """An actor that runs, for the length of a block."""
    actor = Actor(
        bus, fabric.settings, tracer=Tracer(), log=fabric.logger, concurrency=concurrency, outage=ConnectionError
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(actor.run)
        yield actor
        tasks.cancel_scope.cancel()


async def seven(question: SnapshotWanted, asked: RpcContext) -> SnapshotAnswer:
    return SnapshotAnswer(number=7)


class Held:
    """A handler that answers when it is let go."""

    def __init__(self) -> None:
        self.running = 0
        self.go_on = anyio.Event()

    async def answer(self, question: SnapshotWanted, asked: RpcContext) -> SnapshotAnswer:
        self.running += 1
        try:
            await self.go_on.wait()
        finally:
            self.running -= 1
        return SnapshotAnswer(number=7)


async def test_a_question_is_read_and_its_answer_written(fabric: Fabric) -> None:
    questions: list[SnapshotWanted] = []

    async def answer(question: SnapshotWanted, asked: RpcContext) -> SnapshotAnswer:
        questions.append(question)
        return SnapshotAnswer(number=8)

    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(SNAPSHOT, answer, group="catalog")
        await heard(catalog)
        assert await ask(edge, SNAPSHOT, WANTED, timeout=5) == SnapshotAnswer(number=8)
    assert questions == [WANTED]


async def test_who_asks_is_told_by_the_subject(fabric: Fabric) -> None:
    """NATS permits it by user; the body is only a claim."""
    pools: list[dict[str, str]] = []

    async def answer(question: Announce, asked: RpcContext) -> Announced:
        pools.append(asked.tokens)
        return Announced()

    async with fabric.buses("pool-library", "catalog") as (pool, catalog), acting(fabric, catalog) as actor:
        await actor.answer(ANNOUNCE, answer, group="catalog")
        await heard(catalog)
        await ask(pool, ANNOUNCE, Announce(process="w1", digest="d"), timeout=5, pool="library")
    assert pools == [{"pool": "library"}]


async def test_a_handler_knows_until_when_its_answer_is_waited_for_less_a_margin(fabric: Fabric) -> None:
    left: list[float] = []

    async def answer(question: SnapshotWanted, asked: RpcContext) -> SnapshotAnswer:
        left.append(asked.deadline - time.monotonic())
        return SnapshotAnswer(number=7)

    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(SNAPSHOT, answer, group="catalog")
        await heard(catalog)
        await ask(edge, SNAPSHOT, WANTED, timeout=20)
    assert 10 < left[0] <= 0.95 * 20


async def test_the_askers_trace_goes_on_in_the_handler(fabric: Fabric) -> None:
    traces: list[TraceContext] = []

    async def answer(question: SnapshotWanted, asked: RpcContext) -> SnapshotAnswer:
        traces.append(asked.trace)
        return SnapshotAnswer(number=7)

    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(SNAPSHOT, answer, group="catalog")
        await heard(catalog)
        with Tracer().start("test", SpanKind.SERVER, TraceContext.fresh(sampled=True)) as span:
            await ask(edge, SNAPSHOT, WANTED, timeout=5)
    assert traces == [span.context]


# -- what is answered when it fails ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(Failed(Fault.REFUSED, "the pool is not admitted"), Fault.REFUSED, id="of the closed list"),
        pytest.param(Failed(Fault.UNKNOWN, "no such endpoint"), Fault.UNKNOWN, id="unknown"),
        pytest.param(Unavailable("store"), Fault.UNAVAILABLE, id="its own bus"),
        pytest.param(TimeoutError(), Fault.UNAVAILABLE, id="its own timeout"),
        pytest.param(ConnectionError("secret"), Fault.UNAVAILABLE, id="its store's outage"),
        pytest.param(ValueError("secret"), Fault.INTERNAL, id="a mistake"),
    ],
)
async def test_whatever_a_handler_raises_is_a_fault_of_the_closed_list(
    fabric: Fabric, error: Exception, kind: Fault
) -> None:
    async def fail(question: SnapshotWanted, asked: RpcContext) -> SnapshotAnswer:
        raise error

    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(SNAPSHOT, fail, group="catalog")
        await heard(catalog)
        for _ in range(2):
            with pytest.raises(Failed) as raised:
                await ask(edge, SNAPSHOT, WANTED, timeout=5)
            assert raised.value.kind == kind
            assert "secret" not in str(raised.value)


async def test_a_mistake_is_in_the_receivers_log(fabric: Fabric) -> None:
    async def fail(question: SnapshotWanted, asked: RpcContext) -> SnapshotAnswer:
        raise ValueError("why")

    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(SNAPSHOT, fail, group="catalog")
        await heard(catalog)
        with pytest.raises(Failed):
            await ask(edge, SNAPSHOT, WANTED, timeout=5)
    [line] = fabric.lines("handler failed")
    assert line["exc_info"]


async def test_where_the_store_stands_that_does_not_answer_is_in_the_receivers_log(fabric: Fabric) -> None:
    async def fail(question: SnapshotWanted, asked: RpcContext) -> SnapshotAnswer:
        raise ConnectionError("the store at database:5432 cannot be reached")

    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(SNAPSHOT, fail, group="catalog")
        await heard(catalog)
        with pytest.raises(Failed, match="the receiver's store does not answer"):
            await ask(edge, ONCE, WANTED, timeout=5)
    [line] = fabric.lines("store failed")
    assert "database:5432" in line["error"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"endpoint":5}', b'{"endpoint":"NOT A NAME"}'])
async def test_a_question_that_breaks_its_contract_is_told_field_and_rule(fabric: Fabric, body: bytes) -> None:
    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(SNAPSHOT, seven, group="catalog")
        await heard(catalog)
        with pytest.raises(Failed) as raised:
            await edge.request(SNAPSHOT.subject, body, timeout=5)
        assert raised.value.kind == Fault.CONTRACT
        assert SNAPSHOT.subject in str(raised.value)
        assert "NOT A NAME" not in str(raised.value)


async def test_an_answer_that_breaks_its_contract_is_told_likewise(fabric: Fabric) -> None:
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await catalog.subscribe(
            SNAPSHOT.subject, lambda question: catalog.respond(question, b'{"number":"secret"}'), asked_by=by_edges
        )
        await heard(catalog)
        with pytest.raises(UnreadableAnswer, match="number: int_parsing") as raised:
            await ask(edge, SNAPSHOT, WANTED, timeout=5)
        assert "secret" not in str(raised.value)


async def test_an_answer_that_is_too_large_is_a_fault_and_costs_the_service_nothing(fabric: Fabric) -> None:
    size = fabric.settings.bus_max_payload + 1

    async def answer(question: SnapshotWanted, asked: RpcContext) -> SnapshotAnswer:
        if question.known == 0:
            return SnapshotAnswer(number=7)
        huge = Snapshot(endpoint="mcp", number=7, name="x" * size, version="1")
        return SnapshotAnswer(number=7, snapshot=huge)

    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(SNAPSHOT, answer, group="catalog")
        await heard(catalog)
        with pytest.raises(Failed) as raised:
            await ask(edge, SNAPSHOT, WANTED, timeout=2)
        assert raised.value.kind == Fault.TOO_LARGE
        small = SnapshotWanted(endpoint="mcp", known=0)
        assert await ask(edge, SNAPSHOT, small, timeout=5) == SnapshotAnswer(number=7)


# -- time and bounds -------------------------------------------------------------------------------------------------


@pytest.mark.rule("K24")
async def test_what_is_shielded_from_the_deadline_goes_on_to_its_end(fabric: Fabric) -> None:
    """A statement on SQLite runs in a thread, and would otherwise go on where nobody waits for it."""
    statement, ended = anyio.Event(), list[str]()

    async def answer(question: SnapshotWanted, asked: RpcContext) -> SnapshotAnswer:
        with anyio.CancelScope(shield=True):
            await statement.wait()
            ended.append("statement")
        await anyio.lowlevel.checkpoint()
        raise AssertionError("the deadline comes through after the shield")

    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(ONCE, answer, group="catalog")
        await heard(catalog)
        with pytest.raises(Unanswered):
            await ask(edge, ONCE, WANTED, timeout=0.3)
        statement.set()
        await until(lambda: ended == ["statement"])
    assert not fabric.lines("handler failed")


@pytest.mark.rule("K24")
@pytest.mark.parametrize("certain", [True, False])
async def test_a_handler_that_its_deadline_ends_may_state_that_it_has_done_nothing(
    fabric: Fabric, certain: bool
) -> None:
    async def wait_for_a_lock(question: SnapshotWanted, asked: RpcContext) -> SnapshotAnswer:
        try:
            await anyio.sleep_forever()
            raise AssertionError("it waits for ever")
        except anyio.get_cancelled_exc_class() as cancelled:
            cancelled.is_undone = certain  # type: ignore[attr-defined]  # as the store does
            raise

    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(ONCE, wait_for_a_lock, group="catalog")
        await heard(catalog)
        with pytest.raises(Failed) as raised:
            await ask(edge, ONCE, WANTED, timeout=4)
    assert (raised.value.kind, raised.value.is_undone) == (Fault.UNAVAILABLE, certain)


async def test_a_handler_that_takes_too_long_is_stopped_and_its_place_is_free(fabric: Fabric) -> None:
    held = Held()
    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog, concurrency=1) as actor:
        await actor.answer(ONCE, held.answer, group="catalog")
        await heard(catalog)
        with pytest.raises(Failed) as raised:
            await ask(edge, ONCE, WANTED, timeout=0.3)
        assert raised.value.kind == Fault.UNAVAILABLE
        assert held.running == 0
        held.go_on.set()
        assert await ask(edge, ONCE, WANTED, timeout=5) == SnapshotAnswer(number=7)


async def test_beyond_its_concurrency_an_actor_is_busy(fabric: Fabric) -> None:
    held = Held()
    answers: list[SnapshotAnswer] = []
    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog, concurrency=2) as actor:
        await actor.answer(ONCE, held.answer, group="catalog")
        await heard(catalog)

        async def wait() -> None:
            answers.append(await ask(edge, ONCE, WANTED, timeout=5))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            tasks.start_soon(wait)
            await until(lambda: held.running == 2)
            with pytest.raises(Busy):
                await ask(edge, ONCE, WANTED, timeout=5)
            held.go_on.set()
        await wait()
    assert len(answers) == 3


async def expired(edge: Bus, line: str | None) -> Incoming:
    """Ask with a line of the test's own, and wait for the answer."""
    answers: list[Incoming] = []
    reply = f"inbox.edge.{edge.process}.mine"
    subscription = await edge.subscribe(reply, answers.append)
    await heard(edge)
    edge.publish(SNAPSHOT.subject, WANTED.model_dump_json().encode(), reply, line)
    await until(lambda: answers)
    await edge.leave(subscription)
    return answers[0]


def dated(seconds_ago: float) -> str:
    return f"1 5000 {(time.time() - seconds_ago) * 1000:.0f} -"


@pytest.mark.parametrize(
    "seconds_ago", [pytest.param(60.0, id="old"), pytest.param(3.5, id="just too old"), pytest.param(-5.0, id="ahead")]
)
async def test_a_question_that_is_too_old_or_dated_ahead_expires_and_does_not_run(
    fabric: Fabric, seconds_ago: float
) -> None:
    """Its asker may have told somebody that it did not run; the answer has the receiver's clock."""
    ran: list[Any] = []

    async def answer(question: SnapshotWanted, asked: RpcContext) -> SnapshotAnswer:
        ran.append(question)
        return SnapshotAnswer(number=7)

    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(SNAPSHOT, answer, group="catalog")
        await heard(catalog)
        error = ending(SNAPSHOT.subject, await expired(edge, dated(seconds_ago)))
    assert isinstance(error, Expired)
    assert error.skew == pytest.approx(0, abs=1)
    assert ran == []
    assert fabric.lines("question expired")


@pytest.mark.parametrize("line", [None, "nonsense", "2 5000 1 -"])
async def test_a_question_that_does_not_say_when_it_was_sent_is_expired(fabric: Fabric, line: str | None) -> None:
    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(SNAPSHOT, seven, group="catalog")
        await heard(catalog)
        assert isinstance(ending(SNAPSHOT.subject, await expired(edge, line)), Expired)


async def test_a_fresh_question_runs(fabric: Fabric) -> None:
    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(SNAPSHOT, seven, group="catalog")
        await heard(catalog)
        assert (await expired(edge, dated(1.5))).body == b'{"number":7}'


async def test_a_message_that_wants_no_answer_is_handled(fabric: Fabric) -> None:
    held = Held()
    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(SNAPSHOT, held.answer, group="catalog")
        await heard(catalog)
        edge.publish(SNAPSHOT.subject, WANTED.model_dump_json().encode(), header=header.write(5.0, None))
        await until(lambda: held.running)
        held.go_on.set()
        await until(lambda: not held.running)


async def test_an_actor_that_drains_answers_what_it_took_and_takes_nothing_new(fabric: Fabric) -> None:
    held = Held()
    answers: list[SnapshotAnswer] = []
    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(ONCE, held.answer, group="catalog")
        await heard(catalog)

        async def wait() -> None:
            answers.append(await ask(edge, ONCE, WANTED, timeout=5))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await until(lambda: held.running)
            tasks.start_soon(actor.drain)
            await until(lambda: not actor._subscriptions)
            with pytest.raises(NoResponders):
                await ask(edge, ONCE, WANTED, timeout=5)
            held.go_on.set()
    assert answers == [SnapshotAnswer(number=7)]


async def test_an_actor_has_drained_when_its_last_answer_is_given(fabric: Fabric) -> None:
    held = Held()
    drained = anyio.Event()
    async with fabric.buses("edge", "catalog") as (edge, catalog), acting(fabric, catalog) as actor:
        await actor.answer(SNAPSHOT, held.answer, group="catalog")
        await heard(catalog)

        async def drain() -> None:
            await actor.drain()
            drained.set()

        edge.publish(SNAPSHOT.subject, WANTED.model_dump_json().encode(), header=header.write(5.0, None))
        async with anyio.create_task_group() as tasks:
            await until(lambda: held.running)
            tasks.start_soon(drain)
            await until(lambda: not actor._subscriptions)
            too_early = drained.is_set()
            held.go_on.set()
    assert not too_early
