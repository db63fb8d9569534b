"""Queue groups: which member hears a message, in which order, and how a member leaves."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import anyio
import anyio.lowlevel

from mcpfleet.bus.bus import Bus, Subscription
from mcpfleet.bus.port import Incoming
from tests.contract.bus.fabric import Fabric, by_edges, heard
from tests.kit.waiting import until

ASK = "catalog.snapshot"
HINT = "hint.catalog.mcp"
SLACK = 5.0
"""Seconds that a busy machine may need more."""


async def test_of_a_group_one_hears_each_message_and_all_share(fabric: Fabric) -> None:
    counts: dict[str, int] = {}

    async def join(bus: Bus) -> None:
        counts[bus.process] = 0

        def answer(question: Incoming) -> None:
            counts[bus.process] += 1
            bus.respond(question, b"")

        await bus.subscribe(ASK, answer, "catalog", asked_by=by_edges)
        await heard(bus)

    async with fabric.buses("edge", "catalog", "catalog") as (edge, *members):
        for member in members:
            await join(member)
        for _ in range(200):
            await edge.request(ASK, b"", timeout=5)
    assert sum(counts.values()) == 200
    assert min(counts.values()) > 40


async def test_without_a_group_everybody_hears_each_message(fabric: Fabric) -> None:
    hints: list[str] = []
    async with fabric.buses("catalog", "edge", "edge") as (catalog, *edges):
        for edge in edges:
            await edge.subscribe(HINT, lambda _, name=edge.process: hints.append(name))  # type: ignore[misc]  # a default
        await heard(*edges)
        catalog.publish(HINT, b"1")
        await until(lambda: len(hints) == 2)
    assert set(hints) == {edge.process for edge in edges}


async def test_one_sender_is_heard_in_its_order_over_all_that_one_subscription_hears(fabric: Fabric) -> None:
    """A call's frames and `alive` have subjects of their own, and must not overtake each other."""
    arrived: list[int] = []
    async with fabric.buses("edge", "pool-library") as (edge, pool):
        await edge.subscribe(f"edge.{edge.process}.>", lambda message: arrived.append(int(message.body)))
        await heard(edge)
        for number in range(1000):
            kind = ("frames.library.7.progress", "frames.library.8.result", "alive.library")[number % 3]
            pool.publish(f"edge.{edge.process}.{kind}", b"%d" % number)
        await until(lambda: len(arrived) == 1000)
    assert arrived == list(range(1000))


async def test_a_member_that_leaves_loses_no_request(fabric: Fabric) -> None:
    """Unsubscribing would drop those that are on their way to it; it leaves a few times, to be sure."""
    answered: set[int] = set()
    counts = Counter[str]()
    numbers = itertools.count()

    async def ask() -> None:
        answered.add(int((await edge.request(ASK, b"%d" % next(numbers), timeout=2)).body))

    async def join(member: Bus) -> Subscription:
        def answer(question: Incoming) -> None:
            counts[member.process] += 1
            member.respond(question, question.body)

        subscription = await member.subscribe(ASK, answer, "catalog", asked_by=by_edges)
        await heard(member)
        return subscription

    async with fabric.buses("edge", "catalog", "catalog") as (edge, stays, leaves):
        await join(stays)
        for _ in range(5):
            subscription = await join(leaves)
            async with anyio.create_task_group() as tasks:
                for number in range(200):
                    tasks.start_soon(ask)
                    if number == 100:
                        tasks.start_soon(leaves.leave, subscription)
                    if number % 10 == 0:
                        await anyio.lowlevel.checkpoint()
            gone = counts[leaves.process]
            for _ in range(20):
                await ask()
            assert 0 < gone == counts[leaves.process], "it hears nothing afterwards"
    assert answered == set(range(5 * 220))


async def test_leaving_returns_when_what_was_on_its_way_is_delivered(fabric: Fabric) -> None:
    arrived: list[bytes] = []
    async with fabric.buses("catalog", "edge") as (catalog, edge):
        subscription = await edge.subscribe(HINT, lambda hint: arrived.append(hint.body))
        await heard(edge)
        for _ in range(100):
            catalog.publish(HINT, b"1")
        await heard(catalog)  # the server has all of them
        await edge.leave(subscription)
        delivered = len(arrived)
        await heard(edge)
    assert delivered == len(arrived) == 100


async def test_leaving_a_silent_server_lasts_no_longer_than_the_link(fabric: Fabric) -> None:
    """A drain waits for it."""
    async with fabric.buses("edge") as (edge,):
        subscription = await edge.subscribe(HINT, lambda _: None)
        await heard(edge)
        fabric.freeze()
        began = time.monotonic()
        await edge.leave(subscription)
        took = time.monotonic() - began
        fabric.thaw()
    assert took < fabric.settings.bus_question_every + fabric.settings.bus_dead_after + SLACK


async def test_a_callback_that_fails_keeps_its_subscription(fabric: Fabric) -> None:
    """Invariant: one bad message ends nothing; it is counted and logged."""
    arrived: list[bytes] = []

    def take(hint: Incoming) -> None:
        if hint.body == b"bad":
            raise ValueError("cannot take it")
        arrived.append(hint.body)

    async with fabric.buses("catalog", "edge") as (catalog, edge):
        await edge.subscribe(HINT, take)
        await heard(edge)
        for body in (b"bad", b"good", b"bad", b"good"):
            catalog.publish(HINT, body)
        await until(lambda: len(arrived) == 2)
    assert len(fabric.lines("message dropped")) == 2
    assert fabric.instruments.undelivered.read().points[0].value == 2


async def test_a_callback_is_given_subjects_without_the_fleets_prefix(fabric: Fabric) -> None:
    questions: list[Incoming] = []

    def answer(question: Incoming) -> None:
        questions.append(question)
        catalog.respond(question, b"")

    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await catalog.subscribe(ASK, answer, "catalog", asked_by=by_edges)
        await heard(catalog)
        await edge.request(ASK, b"", timeout=5)
        assert questions[0].subject == ASK
