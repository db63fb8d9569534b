"""The link to the others is lost and made again: what is heard, what is told, and when."""

from __future__ import annotations

import time
from functools import partial

import anyio
import pytest

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError, Unanswered, Unavailable
from mcpfleet.bus.port import Incoming
from tests.contract.bus.fabric import Fabric, by_edges, heard, running
from tests.kit.waiting import until

ASK = "catalog.snapshot"
HINT = "hint.catalog.mcp"
SLACK = 5.0
"""Seconds that a busy machine may need more."""


async def is_down(*buses: Bus) -> None:
    await until(lambda: not any(bus.is_up for bus in buses), within=10)


async def is_up(*buses: Bus) -> None:
    with anyio.fail_after(5):
        for bus in buses:
            await bus.wait_up()


class Asking:
    """A request in a task of its own, and how it ended."""

    def __init__(self, bus: Bus, timeout: float) -> None:
        self._bus = bus
        self._timeout = timeout
        self.error: BusError | None = None
        self.took = 0.0

    async def run(self) -> None:
        began = time.monotonic()
        try:
            await self._bus.request(ASK, b"", timeout=self._timeout)
        except BusError as error:
            self.error = error
        self.took = time.monotonic() - began


async def test_what_was_subscribed_is_heard_again_over_the_next_link(fabric: Fabric) -> None:
    hints: list[bytes] = []
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await edge.subscribe(HINT, lambda hint: hints.append(hint.body))
        await catalog.subscribe(ASK, lambda question: catalog.respond(question, b"yes"), "catalog", asked_by=by_edges)
        for number in (1, 2):
            await fabric.lose()
            await is_down(edge, catalog)
            await fabric.start()
            await is_up(edge, catalog)
            catalog.publish(HINT, b"%d" % number)
            await until(lambda number=number: len(hints) == number)  # type: ignore[misc]  # mypy infers no default
            assert (await edge.request(ASK, b"", timeout=5)).body == b"yes"
    assert hints == [b"1", b"2"]


@pytest.mark.rule("K31")
async def test_a_question_that_a_former_link_brought_is_not_answered_over_the_next(fabric: Fabric) -> None:
    """NATS permits the answer to the former link alone. Its refusal would count as a lack of permissions."""
    questions: list[Incoming] = []
    async with fabric.buses("edge", "catalog") as (edge, catalog), anyio.create_task_group() as tasks:
        await catalog.subscribe(ASK, questions.append, "catalog", asked_by=by_edges)
        await heard(catalog)
        tasks.start_soon(Asking(edge, 5).run)
        await until(lambda: questions)
        await fabric.lose()
        await is_down(edge, catalog)
        await fabric.start()
        await is_up(edge, catalog)
        catalog.respond(questions[0], b"late")
        tasks.start_soon(Asking(edge, 5).run)
        await until(lambda: len(questions) > 1)
        catalog.respond(questions[1], b"in time")
        await heard(catalog)
        assert fabric.lines("refused by NATS") == []


async def test_what_is_subscribed_while_down_is_heard_once_up(fabric: Fabric) -> None:
    hints: list[bytes] = []
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await fabric.lose()
        await is_down(edge, catalog)
        await edge.subscribe(HINT, lambda hint: hints.append(hint.body))
        await fabric.start()
        await is_up(edge, catalog)
        catalog.publish(HINT, b"1")
        await until(lambda: hints)


async def test_what_was_left_while_down_is_not_heard_again(fabric: Fabric) -> None:
    left: list[bytes] = []
    kept: list[bytes] = []
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        subscription = await edge.subscribe(HINT, lambda hint: left.append(hint.body))
        await edge.subscribe(HINT, lambda hint: kept.append(hint.body))
        await fabric.lose()
        await is_down(edge, catalog)
        await edge.leave(subscription)
        await fabric.start()
        await is_up(edge, catalog)
        catalog.publish(HINT, b"1")
        await until(lambda: kept)
        await heard(edge)
    assert left == []


async def test_a_request_that_waits_when_the_link_is_lost_is_unanswered_at_once(fabric: Fabric) -> None:
    """It was sent, so it may have run; and its time need not be waited for."""
    asked = anyio.Event()
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await catalog.subscribe(ASK, lambda _: asked.set(), "catalog", asked_by=by_edges)
        await heard(catalog)
        asking = Asking(edge, timeout=60)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(asking.run)
                await asked.wait()
                await fabric.lose()
    assert isinstance(asking.error, Unanswered)
    assert asking.took < 30


async def test_a_message_published_while_down_is_an_error_and_is_never_delivered_late(fabric: Fabric) -> None:
    hints: list[bytes] = []
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await edge.subscribe(HINT, lambda hint: hints.append(hint.body))
        await fabric.lose()
        await is_down(edge, catalog)
        with pytest.raises(Unavailable, match="MCPFLEET_NATS_URL"):
            catalog.publish(HINT, b"while down")
        await fabric.start()
        await is_up(edge, catalog)
        catalog.publish(HINT, b"once up")
        await until(lambda: hints)
        await heard(edge)
    assert hints == [b"once up"]


async def test_a_request_while_down_has_not_run(fabric: Fabric) -> None:
    async with fabric.buses("edge") as (edge,):
        await fabric.lose()
        await is_down(edge)
        with pytest.raises(Unavailable):
            await edge.request(ASK, b"", timeout=5)


async def test_an_answer_while_down_is_dropped_without_an_error(fabric: Fabric) -> None:
    """The asker is told that it is unanswered, and asks again where that is safe."""
    questions: list[Incoming] = []
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await catalog.subscribe(ASK, questions.append, "catalog", asked_by=by_edges)
        await heard(catalog)
        asking = Asking(edge, timeout=60)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asking.run)
            await until(lambda: questions)
            await fabric.lose()
            await is_down(catalog)
            catalog.respond(questions[0], b"too late")


async def test_whoever_wants_to_know_is_told_of_each_loss_and_each_link(fabric: Fabric) -> None:
    news: list[bool] = []
    edge = fabric.bus("edge")
    edge.on_link(news.append)
    async with running(edge):
        await is_up(edge)
        await fabric.lose()
        await is_down(edge)
        await fabric.start()
        await is_up(edge)
    assert news[:3] == [True, False, True]
    assert fabric.instruments.links.read().points[0].value == 2


async def test_silence_counts_only_while_the_link_is_proven(fabric: Fabric) -> None:
    """A process that was not heard in a gap may have spoken in vain."""
    async with fabric.buses("edge") as (edge,):
        long_ago = time.monotonic() - 100
        first = edge.proven_since
        assert first is not None
        assert edge.silence(long_ago) < 50, "it counts from the link's proof, not from before"
        await fabric.lose()
        await is_down(edge)
        meanwhile = edge.proven_since, edge.silence(long_ago)
        await fabric.start()
        await is_up(edge)
        afterwards = edge.proven_since
        assert edge.silence(long_ago) < 50, "and afresh after a gap"
    assert meanwhile == (None, 0.0)
    assert afterwards is not None
    assert afterwards > first


async def test_a_proof_that_is_repeated_keeps_its_beginning(fabric: Fabric) -> None:
    async with fabric.buses("edge", bus_question_every=0.2, bus_dead_after=0.4) as (edge,):
        first = edge.proven_since
        await anyio.sleep(0.8)  # longer than one proof holds
        assert first is not None
        assert edge.proven_since == first


async def test_a_server_that_is_silent_is_dead_after_a_question_and_its_time(fabric: Fabric) -> None:
    """D13: whatever the client library says, which still believes that it is connected."""
    asked = anyio.Event()
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await catalog.subscribe(ASK, lambda _: asked.set(), "catalog", asked_by=by_edges)
        await heard(catalog)
        asking = Asking(edge, timeout=60)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asking.run)
            await asked.wait()
            fabric.freeze()
            frozen = time.monotonic()
            await is_down(edge)
            took = time.monotonic() - frozen
        settings = fabric.settings
        assert took < settings.bus_question_every + settings.bus_dead_after + SLACK
        assert isinstance(asking.error, Unanswered)
        with pytest.raises(Unavailable):
            edge.publish(ASK, b"")
        fabric.thaw()
        await is_up(edge, catalog)
        await heard(edge, catalog)


async def test_a_short_silence_loses_nothing(fabric: Fabric) -> None:
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await catalog.subscribe(ASK, lambda question: catalog.respond(question, b"yes"), "catalog", asked_by=by_edges)
        await heard(catalog)
        fabric.freeze()
        await anyio.sleep(0.1)
        fabric.thaw()
        assert (await edge.request(ASK, b"", timeout=5)).body == b"yes"
    assert fabric.instruments.links.read().points[0].value == 2, "one for each bus"


async def test_a_bus_that_runs_before_there_is_a_server_finds_it(fabric: Fabric) -> None:
    """The order in which processes start does not matter."""
    await fabric.lose()
    edge = fabric.bus("edge")
    async with running(edge):
        await until(lambda: fabric.lines("waiting for NATS"))
        assert not edge.is_up
        await fabric.start()
        await is_up(edge)


async def test_an_operator_is_told_which_setting_to_look_at_and_not_all_the_time(fabric: Fabric) -> None:
    await fabric.lose()
    edge = fabric.bus("edge")
    async with running(edge):
        await until(lambda: fabric.lines("waiting for NATS"))
        await anyio.sleep(0.3)  # several attempts, which have nothing new to tell
    [line] = fabric.lines("waiting for NATS")
    assert line["setting"] == "MCPFLEET_NATS_URL"
    assert line["nats"] == fabric.where


async def test_what_waits_on_a_bus_that_ends_is_unanswered(fabric: Fabric) -> None:
    edge = fabric.bus("edge")
    catalog = fabric.bus("catalog")
    asked = anyio.Event()
    asking = Asking(edge, timeout=60)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks, running(catalog):
            await is_up(catalog)
            await catalog.subscribe(ASK, lambda _: asked.set(), "catalog", asked_by=by_edges)
            await heard(catalog)
            async with running(edge):
                await is_up(edge)
                tasks.start_soon(asking.run)
                await asked.wait()
    assert isinstance(asking.error, Unanswered)


async def test_after_a_flush_what_was_subscribed_before_is_heard(fabric: Fabric) -> None:
    """Subscribing waits for nobody: who must not miss a message asks itself first."""
    came: list[str] = []
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        for number in range(20):
            subject = f"hint.catalog.e{number}"
            await edge.subscribe(subject, lambda message: came.append(message.subject))
            await edge.flush(timeout=5)
            catalog.publish(subject, b"1")
            await until(partial(came.__contains__, subject), within=5)


async def test_a_flush_ends_with_the_time_or_the_link(fabric: Fabric) -> None:
    async with fabric.buses("edge", bus_question_every=5.0, bus_dead_after=5.0) as (edge,):
        fabric.freeze()
        with pytest.raises(Unanswered):
            await edge.flush(timeout=0.2)
        fabric.thaw()
        await edge.flush(timeout=5)
        await fabric.lose()
        with pytest.raises((Unanswered, Unavailable)):
            await edge.flush(timeout=5)
        await fabric.start()
