"""A request ends in an answer, or in one of a closed list that says whether it may have run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import anyio
import pytest

from mcpfleet.bus import header
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import Busy, Failed, Fault, NoResponders, Unanswered, Unavailable, is_undone
from mcpfleet.bus.port import Incoming
from mcpfleet.telemetry.trace import TraceContext, current
from tests.contract.bus.fabric import Fabric, by_edges, heard
from tests.kit.waiting import until

ASK = "catalog.snapshot"
"""A subject that edges ask and the catalog answers."""


async def answering(bus: Bus, answer: Callable[[Incoming], None]) -> None:
    """Have a bus answer from now on."""
    await bus.subscribe(ASK, answer, "catalog", asked_by=by_edges)
    await heard(bus)


async def test_an_answer_comes_back_with_its_body(fabric: Fabric) -> None:
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, lambda question: catalog.respond(question, b"seven:" + question.body))
        assert (await edge.request(ASK, b"which", timeout=5)).body == b"seven:which"


async def test_each_of_many_gets_its_own_answer_whatever_their_order(fabric: Fabric) -> None:
    questions: list[Incoming] = []

    def answer_backwards(question: Incoming) -> None:
        questions.append(question)
        if len(questions) == 50:
            for one in reversed(questions):
                catalog.respond(one, one.body)

    answers: dict[int, bytes] = {}

    async def ask(number: int) -> None:
        answers[number] = (await edge.request(ASK, b"%d" % number, timeout=5)).body

    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, answer_backwards)
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(ask, number)
    assert answers == {number: b"%d" % number for number in range(50)}


async def test_a_question_says_when_it_was_sent_how_long_it_has_and_of_which_trace_it_is(fabric: Fabric) -> None:
    lines: list[str | None] = []

    def answer(question: Incoming) -> None:
        lines.append(question.header)
        catalog.respond(question, b"")

    trace = TraceContext.fresh(sampled=True)
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, answer)
        token, before = current.set(trace), time.time()
        await edge.request(ASK, b"", timeout=60)
        current.reset(token)
    sent = header.read(lines[0])
    assert sent is not None
    assert 30 < sent.left <= 60
    assert before - 0.01 <= sent.at <= time.time() + 0.01
    assert sent.trace == trace


async def test_a_receiver_without_room_is_busy(fabric: Fabric) -> None:
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, lambda question: catalog.respond(question, b"", header.BUSY))
        with pytest.raises(Busy, match=ASK):
            await edge.request(ASK, b"", timeout=5)


async def test_a_fault_is_raised_with_its_kind(fabric: Fabric) -> None:
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, lambda question: catalog.respond(question, b"no such", header.fault(Fault.UNKNOWN)))
        with pytest.raises(Failed, match="no such") as raised:
            await edge.request(ASK, b"", timeout=5)
        assert raised.value.kind == Fault.UNKNOWN


@pytest.mark.rule("K24")
@pytest.mark.parametrize(("unanswered", "certain"), [(0, True), (1, False)])
async def test_a_refusal_is_certain_unless_the_first_asking_had_no_answer(
    fabric: Fabric, unanswered: int, certain: bool
) -> None:
    """The answer to a repeat says nothing of the first, which may still be done."""
    asked: list[Incoming] = []

    def answer(question: Incoming) -> None:
        asked.append(question)
        if len(asked) > unanswered:
            catalog.respond(question, b"no store", header.fault(Fault.UNAVAILABLE, is_undone=True))

    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, answer)
        with pytest.raises(Failed, match="no store") as raised:
            await edge.request(ASK, b"", timeout=2, repeat=True)
    assert raised.value.kind == Fault.UNAVAILABLE
    assert is_undone(raised.value) is certain


@pytest.mark.rule("K24")
@pytest.mark.parametrize(
    ("late", "certain"),
    [
        (header.fault(Fault.UNAVAILABLE, is_undone=True), True),
        (header.BUSY, True),
        (header.fault(Fault.UNAVAILABLE), False),
    ],
)
async def test_two_askings_are_undone_where_both_say_so(fabric: Fabric, late: str, certain: bool) -> None:
    asked: list[Incoming] = []

    def answer(question: Incoming) -> None:
        asked.append(question)
        if len(asked) == 2:
            catalog.respond(question, b"no store", header.fault(Fault.UNAVAILABLE, is_undone=True))
            catalog.respond(asked[0], b"", late)

    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, answer)
        with pytest.raises(Failed, match="no store") as raised:
            await edge.request(ASK, b"", timeout=5, repeat=True)
    assert is_undone(raised.value) is certain


@pytest.mark.rule("K24")
async def test_a_late_answer_counts_where_the_repeat_was_refused(fabric: Fabric) -> None:
    asked: list[Incoming] = []

    def answer(question: Incoming) -> None:
        asked.append(question)
        if len(asked) == 2:
            catalog.respond(question, b"no store", header.fault(Fault.UNAVAILABLE, is_undone=True))
            catalog.respond(asked[0], b"done")

    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, answer)
        assert (await edge.request(ASK, b"", timeout=5, repeat=True)).body == b"done"


async def test_where_nobody_hears_a_subject_the_asker_knows_at_once(fabric: Fabric) -> None:
    async with fabric.buses("edge") as (edge,):
        began = time.monotonic()
        with pytest.raises(NoResponders, match=ASK):
            await edge.request(ASK, b"", timeout=60)
        assert time.monotonic() - began < 30


async def test_silence_is_unanswered_when_the_time_is_over(fabric: Fabric) -> None:
    """It may have run; and it is counted."""
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, lambda _: None)
        began = time.monotonic()
        with pytest.raises(Unanswered):
            await edge.request(ASK, b"", timeout=0.2)
        assert 0.2 <= time.monotonic() - began < 20
    assert fabric.instruments.unanswered.read().points[0].value == 1


async def test_without_a_link_nothing_is_sent(fabric: Fabric) -> None:
    edge = fabric.bus("edge")
    with pytest.raises(Unavailable, match="MCPFLEET_NATS_URL"):
        await edge.request(ASK, b"", timeout=5)


async def test_an_answer_that_is_late_is_nobodys(fabric: Fabric) -> None:
    questions: list[Incoming] = []

    def answer(question: Incoming) -> None:
        questions.append(question)
        if len(questions) == 2:
            catalog.respond(questions[0], b"to the first")
            catalog.respond(questions[1], b"to the second")

    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, answer)
        with pytest.raises(Unanswered):
            await edge.request(ASK, b"", timeout=0.2)
        assert (await edge.request(ASK, b"", timeout=5)).body == b"to the second"


async def test_only_the_first_answer_counts(fabric: Fabric) -> None:
    def answer(question: Incoming) -> None:
        catalog.respond(question, b"first")
        catalog.respond(question, b"second")

    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, answer)
        assert (await edge.request(ASK, b"", timeout=5)).body == b"first"
        assert (await edge.request(ASK, b"", timeout=5)).body == b"first"


async def test_an_answer_goes_only_where_its_asker_alone_hears_it(fabric: Fabric) -> None:
    """NATS lets a question name any reply: unchecked, our answers would be written into anybody's inbox."""
    asked: list[str] = []
    overheard: list[bytes] = []

    def answer(question: Incoming) -> None:
        asked.append(question.reply)
        catalog.respond(question, b"forged")

    async with fabric.buses("edge", "catalog", "pool-library") as (edge, catalog, pool):
        await answering(catalog, answer)
        victim = f"inbox.pool-library.{pool.process}.x"
        await pool.subscribe(victim, lambda message: overheard.append(message.body))
        await heard(pool)
        edge.publish(ASK, b"", victim)
        await until(lambda: asked)
        await heard(catalog, pool)
    assert asked == [""]
    assert overheard == []
    assert fabric.lines("reply refused")


async def test_who_subscribes_without_saying_for_whom_answers_nobody(fabric: Fabric) -> None:
    asked: list[str] = []
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await catalog.subscribe(ASK, lambda question: asked.append(question.reply), "catalog")
        await heard(catalog)
        with pytest.raises(Unanswered):
            await edge.request(ASK, b"", timeout=0.2)
    assert asked == [""]


async def test_a_request_that_is_cancelled_leaves_nothing_behind(fabric: Fabric) -> None:
    asked = anyio.Event()
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, lambda _: asked.set())
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                await edge.request(ASK, b"", timeout=5)

            tasks.start_soon(ask)
            await asked.wait()
            tasks.cancel_scope.cancel()
        assert edge._waiting == {}


@pytest.mark.parametrize("timeout", [0.0, -1.0])
async def test_a_request_without_time_left_does_not_wait(fabric: Fabric, timeout: float) -> None:
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, lambda _: None)
        with anyio.fail_after(2), pytest.raises(Unanswered):
            await edge.request(ASK, b"", timeout=timeout)
        assert edge._waiting == {}


# -- asking once more ------------------------------------------------------------------------------------------------


async def test_what_is_safe_to_repeat_is_asked_once_more_after_half_a_second(fabric: Fabric) -> None:
    """With the time that is left then."""
    moments: list[float] = []
    left: list[float] = []

    def answer(question: Incoming) -> None:
        sent = header.read(question.header)
        moments.append(time.monotonic())
        left.append(sent.left if sent else math.nan)
        if len(moments) == 2:
            catalog.respond(question, b"at last")

    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, answer)
        assert (await edge.request(ASK, b"", timeout=60, repeat=True)).body == b"at last"
    assert 0.4 < moments[1] - moments[0] < 20
    assert 0.4 < left[0] - left[1] < 20


async def test_a_receiver_that_comes_within_half_a_second_is_found(fabric: Fabric) -> None:
    """A service that is just being replaced is not an error yet."""
    async with fabric.buses("edge", "catalog") as (edge, catalog), anyio.create_task_group() as tasks:

        async def come() -> None:
            await answering(catalog, lambda question: catalog.respond(question, b"here"))

        tasks.start_soon(come)
        assert (await edge.request(ASK, b"", timeout=5, repeat=True)).body == b"here"


async def test_what_may_not_be_repeated_is_asked_once(fabric: Fabric) -> None:
    asked: list[Incoming] = []
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, asked.append)
        with pytest.raises(Unanswered):
            await edge.request(ASK, b"", timeout=0.6)
        await until(lambda: asked)
    assert len(asked) == 1


async def test_a_second_asking_that_did_not_run_does_not_make_the_first_certain(fabric: Fabric) -> None:
    """The first was heard and may have run: whatever becomes of the second, the whole is uncertain."""
    asked: list[Incoming] = []

    def answer(question: Incoming) -> None:
        asked.append(question)
        if len(asked) == 2:
            catalog.respond(question, b"", header.BUSY)

    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog, answer)
        with pytest.raises(Unanswered):
            await edge.request(ASK, b"", timeout=5, repeat=True)
