"""The in-memory switch alone: it misbehaves when told to, and only as NATS could."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import NoResponders, Unanswered
from mcpfleet.bus.memory.faults import Faults
from mcpfleet.bus.memory.permissions import ReplyPermits, UserPermissions, matches, tokens_of
from mcpfleet.bus.memory.switch import Switch
from mcpfleet.process.settings import ProcessSettings
from tests.contract.bus.conftest import QUICK
from tests.contract.bus.fabric import MemoryFabric, by_edges, heard
from tests.kit.waiting import until

pytestmark = pytest.mark.usefixtures("jumping")

ASK = "catalog.snapshot"
HINTS = ("hint.catalog.a", "hint.catalog.b")
SEEDS = range(5)


@pytest.fixture
def memory(settings: ProcessSettings, tmp_path: Path) -> Iterator[MemoryFabric]:
    fabric = MemoryFabric(tmp_path, settings)
    yield fabric
    fabric.switch.stop()


async def sent(memory: MemoryFabric, faults: Faults, count: int = 200) -> list[tuple[str, int]]:
    """Send numbered hints on two subjects in turn, and return what arrived, as it arrived."""
    arrived: list[tuple[str, int]] = []
    async with memory.buses("catalog", "edge") as (catalog, edge):
        await edge.subscribe("hint.catalog.*", lambda hint: arrived.append((hint.subject, int(hint.body))))
        await heard(edge)
        memory.switch.misbehave(faults)
        for number in range(count):
            catalog.publish(HINTS[number % 2], b"%d" % number)
        await heard(catalog)  # the switch has all of them
        memory.switch.misbehave()
        await anyio.sleep(faults.delay if faults.late else 0)
        for subject in HINTS:
            catalog.publish(subject, b"-1")  # arrives last of its subject
        await until(lambda: [number for _, number in arrived].count(-1) == 2)
    return [(subject, number) for subject, number in arrived if number >= 0]


def numbers(arrived: list[tuple[str, int]], subject: str) -> list[int]:
    return [number for each, number in arrived if each == subject]


# -- faults ----------------------------------------------------------------------------------------------------------


async def test_by_default_nothing_goes_wrong(memory: MemoryFabric) -> None:
    assert [number for _, number in await sent(memory, Faults())] == list(range(200))


async def test_messages_are_lost_in_about_their_share(memory: MemoryFabric) -> None:
    arrived = await sent(memory, Faults(lost=0.3), count=1000)
    assert 600 < len(arrived) < 800


async def test_a_doubled_message_comes_twice_before_the_next_of_its_subject(memory: MemoryFabric) -> None:
    arrived = await sent(memory, Faults(doubled=0.5))
    assert 250 < len(arrived) < 350
    for subject in HINTS:
        assert numbers(arrived, subject) == sorted(numbers(arrived, subject))


@pytest.mark.parametrize("seed", SEEDS)
async def test_late_messages_are_overtaken_and_never_by_one_of_their_sender_and_subject(
    memory: MemoryFabric, seed: int
) -> None:
    arrived = await sent(memory, Faults(late=0.2, delay=0.05, doubled=0.1, seed=seed))
    assert [number for _, number in arrived] != sorted(number for _, number in arrived)
    for subject in HINTS:
        assert numbers(arrived, subject) == sorted(numbers(arrived, subject))
    assert {number for _, number in arrived} == set(range(200)), "late is not lost"


async def test_the_same_seed_hits_the_same_messages_and_another_does_not(memory: MemoryFabric) -> None:
    faults = [Faults(lost=0.2, doubled=0.2, seed=seed) for seed in (1, 1, 2)]
    first, again, other = [await sent(memory, each) for each in faults]
    assert first == again != other


async def test_only_the_subjects_that_are_named_are_hit(memory: MemoryFabric) -> None:
    arrived = await sent(memory, Faults(lost=1.0, subjects=("mcpfleet.hint.*.a",)))
    assert numbers(arrived, HINTS[0]) == []
    assert len(numbers(arrived, HINTS[1])) == 100


async def test_what_a_process_sends_to_itself_is_spared(memory: MemoryFabric) -> None:
    """Were its question to itself lost, so would be its link."""
    async with memory.buses("edge") as (edge,):
        memory.switch.misbehave(Faults(lost=1.0))
        await heard(edge)


# -- cuts ------------------------------------------------------------------------------------------------------------


async def test_who_is_cut_off_for_a_moment_has_missed_nothing(memory: MemoryFabric) -> None:
    async with memory.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog)
        memory.switch.cut(catalog.process)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(edge_asks, edge)
            await anyio.sleep(0.1)
            memory.switch.heal(catalog.process)
    assert memory.instruments.links.read().points[0].value == 2, "one for each bus"


async def test_who_is_cut_off_finds_its_link_dead_and_makes_another_when_it_can(memory: MemoryFabric) -> None:
    async with memory.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog)
        memory.switch.cut(catalog.process)
        await until(lambda: not catalog.is_up, within=3)
        assert edge.is_up, "the others do not notice"
        memory.switch.heal(catalog.process)
        with anyio.fail_after(3):
            await catalog.wait_up()
        await edge_asks(edge)


async def test_a_group_goes_on_with_a_dead_member_until_it_is_noticed_and_then_without(memory: MemoryFabric) -> None:
    async with memory.buses("edge", "catalog") as (edge, catalog):
        await answering(catalog)
        memory.switch.cut(catalog.process)
        with pytest.raises(Unanswered):
            await edge.request(ASK, b"", timeout=0.1)
        with anyio.fail_after(3):
            while True:
                try:
                    await edge.request(ASK, b"", timeout=0.1)
                except NoResponders:
                    break
                except Unanswered:
                    continue


async def test_what_was_sent_into_a_cut_is_lost_with_the_link(memory: MemoryFabric) -> None:
    hints: list[bytes] = []
    async with memory.buses("catalog", "edge") as (catalog, edge):
        await edge.subscribe(HINTS[0], lambda hint: hints.append(hint.body))
        await heard(edge)
        memory.switch.cut(catalog.process)
        catalog.publish(HINTS[0], b"into the cut")
        await until(lambda: not catalog.is_up, within=3)
        memory.switch.heal(catalog.process)
        await catalog.wait_up()
        catalog.publish(HINTS[0], b"after it")
        await until(lambda: hints)
    assert hints == [b"after it"]


async def test_a_message_to_a_frozen_switch_passes_later_though_its_sender_is_gone(
    memory: MemoryFabric,
) -> None:
    """A paused NATS has it in its sockets. That is why a message says when it was sent."""
    hints: list[bytes] = []
    async with memory.buses("edge") as (edge,):
        await edge.subscribe(HINTS[0], lambda hint: hints.append(hint.body))
        async with memory.buses("catalog") as (catalog,):
            await heard(edge)
            memory.freeze()
            catalog.publish(HINTS[0], b"late")
        await anyio.sleep(0.05)
        assert hints == []
        memory.thaw()
        await until(lambda: hints)


async def test_who_died_is_out_of_its_groups_at_once(memory: MemoryFabric) -> None:
    async with memory.buses("edge") as (edge,), memory.buses("catalog", bus_reconnect_jitter=60) as (catalog,):
        await answering(catalog)
        memory.switch.end(catalog.process)
        with pytest.raises(NoResponders):
            await edge.request(ASK, b"", timeout=5)


@pytest.mark.parametrize("settings", [QUICK.model_copy(update={"bus_question_every": 60.0})])
async def test_a_link_that_is_too_far_behind_is_lost_before_any_question(memory: MemoryFabric) -> None:
    """No queue is without a bound."""
    body = b"x" * 1024 * 1024
    async with memory.buses("catalog", "edge") as (catalog, edge):
        await edge.subscribe(HINTS[0], lambda _: None)
        await heard(edge)
        memory.switch.cut(edge.process)
        for _ in range(70):
            catalog.publish(HINTS[0], body)
            await heard(catalog)
        await until(lambda: not edge.is_up)
        memory.switch.heal(edge.process)


async def answering(catalog: Bus) -> None:
    await catalog.subscribe(ASK, lambda question: catalog.respond(question, b"yes"), "catalog", asked_by=by_edges)
    await heard(catalog)


async def edge_asks(edge: Bus) -> None:
    assert (await edge.request(ASK, b"", timeout=2)).body == b"yes"


# -- rules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.b", "a.b.c", False),
        ("a.b.c", "a.b", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("a.*", "a.*", True),
        ("a.*", "a.>", False),
        ("a.b", "a.*", False),
        ("a.>", "a.*", True),
        ("a.>", "a.>", True),
        ("a.>", ">", False),
    ],
)
def test_a_pattern_matches_as_nats_matches(pattern: str, subject: str, expected: bool) -> None:
    """A pattern matches another where it hears all that the other hears."""
    assert matches(tokens_of(pattern), tokens_of(subject)) is expected


def rights(**changes: Any) -> dict[str, Any]:
    return {
        "publish": {"allow": ["a"]},
        "subscribe": {"allow": ["b"]},
        "allow_responses": {"max": 2, "expires": "30s"},
        **changes,
    }


def test_whoever_was_asked_may_answer_as_often_as_its_user_may() -> None:
    answers = ReplyPermits(UserPermissions.read(rights()))
    answers.grant("reply")
    assert [answers.take("reply") for _ in range(3)] == [True, True, False]


def test_an_answer_may_be_too_late() -> None:
    answers = ReplyPermits(UserPermissions.read(rights(allow_responses={"max": 1, "expires": "0s"})))
    answers.grant("reply")
    assert not answers.take("reply")


def test_without_a_rule_for_answers_nobody_may() -> None:
    permissions = rights()
    del permissions["allow_responses"]
    answers = ReplyPermits(UserPermissions.read(permissions))
    answers.grant("reply")
    assert not answers.take("reply")


@pytest.mark.parametrize(
    "changes", [{"publish": {"allow": [], "deny": ["a"]}}, {"import": {}, "export": {"allow": []}}]
)
def test_permissions_that_the_switch_would_leave_out_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the switch knows no permissions"):
        Switch({"user": rights(**changes)})
