"""One caller has one process of a source in the whole fleet, whichever worker a call reaches."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
import structlog

from mcpfleet.bus.errors import Unavailable
from mcpfleet.contracts.places import HoldPlaces, PlacesHeld
from mcpfleet.sources.source import Source
from mcpfleet.testing.local import LocalFleet
from mcpfleet.worker.hosting.places import Places
from mcpfleet.worker.upstream import HeldElsewhere, NotSent
from tests.contract.fleet.accounts_app import ANN, BOB, TOKENS
from tests.contract.fleet.vault_app import post
from tests.contract.hosting.hosting_harness import hosted_fleet, source
from tests.kit.tasks import TaskClient, text_of
from tests.kit.waiting import pause

ME, OTHER = "1" * 16, "2" * 16
KEY = "a" * 32
_PLACES = "mcpfleet.worker.hosting.places"


def two_workers(*sources: Source, environment: Mapping[str, str] | None = None, **options: Any) -> LocalFleet:
    """A fleet of two workers, whose callers are ann and bob."""
    own = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps(TOKENS), **(environment or {})}
    return hosted_fleet(*(sources or (source(isolation=None),)), workers=2, environment=own, **options)


async def call(http: httpx2.AsyncClient, token: str, name: str) -> httpx2.Response:
    return await post(http, token, "tools/call", {"name": name, "arguments": {}}, name)


async def pid_of(http: httpx2.AsyncClient, token: str) -> str:
    answer = await call(http, token, "pid")
    assert answer.status_code == 200, answer.text
    return str(answer.json()["result"]["content"][0]["text"])


@pytest.mark.rule("B15", "B16")
@pytest.mark.parametrize("nats", [False, True])
async def test_a_callers_calls_reach_one_process_over_all_workers(nats: bool) -> None:
    async with two_workers(nats=nats) as fleet, fleet.http() as http:
        anns, bobs = set(), set()
        for _ in range(8):
            anns.add(await pid_of(http, ANN))
            bobs.add(await pid_of(http, BOB))
    assert (len(anns), len(bobs), len(anns | bobs)) == (1, 1, 2)


@pytest.mark.rule("B16")
async def test_a_callers_first_calls_that_come_together_have_one_process_over_all_workers() -> None:
    pids: set[str] = set()

    async def note(http: httpx2.AsyncClient) -> None:
        pids.add(await pid_of(http, ANN))

    async with two_workers() as fleet, fleet.http() as http, anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(note, http)
    assert len(pids) == 1


@pytest.mark.rule("B5", "B16")
async def test_a_call_that_was_handed_on_reports_progress_and_hears_its_cancel() -> None:
    async with two_workers() as fleet, fleet.http() as http:
        await pid_of(http, ANN)
        for _ in range(6):
            with anyio.move_on_after(0.3):
                await call(http, ANN, "sleep")
        with anyio.fail_after(20):
            cancelled: list[int] = []
            while len(cancelled) < 6:
                answer = await call(http, ANN, "cancelled")
                cancelled = json.loads(answer.json()["result"]["content"][0]["text"])
                await anyio.sleep(0.1)


@pytest.mark.rule("B16")
async def test_a_worker_that_leaves_frees_its_places_at_once() -> None:
    async with two_workers() as fleet, fleet.http() as http:
        before = {await pid_of(http, ANN), await pid_of(http, BOB)}
        former = list(fleet.workers)
        await former[0].stop()
        before |= {await pid_of(http, ANN), await pid_of(http, BOB)}
        await fleet.add_worker()
        await former[1].stop()
        after = {await pid_of(http, ANN), await pid_of(http, BOB)}
        assert len(after) == 2
        assert not after & before


@pytest.mark.rule("B16", "B7")
async def test_a_call_for_a_worker_that_died_was_not_run() -> None:
    async with two_workers() as fleet, fleet.http() as http:
        before = {await pid_of(http, ANN), await pid_of(http, BOB)}
        await fleet.workers[0].kill()
        answers = [await call(http, token, "pid") for token in (ANN, BOB)]
        assert {each.status_code for each in answers} <= {200, 503}
        for each in answers:
            if each.status_code == 200:
                assert each.json()["result"]["content"][0]["text"] in before


@pytest.mark.rule("B16")
async def test_a_task_runs_where_its_callers_connection_is() -> None:
    durable = source(isolation=None, tools={"pid": {"task": "optional"}})
    never = {"MCPFLEET_TASK_BACKOFF": "3600", "MCPFLEET_TASK_BACKOFF_MOST": "3600"}
    async with two_workers(durable, environment=never) as fleet, fleet.http() as http:
        client = TaskClient(http, headers={"Authorization": f"Bearer {ANN}"})
        ended = [await client.until(await client.start("pid")) for _ in range(12)]
        assert {text_of(task) for task in ended} == {await pid_of(http, ANN)}


class Subscriptions:
    """Answers for places as it is told."""

    def __init__(self) -> None:
        self.holder: str | None = ME
        self.is_known = True
        self.is_there = True
        self.told: list[HoldPlaces] = []

    async def answer(self, wanted: HoldPlaces) -> PlacesHeld:
        self.told.append(wanted)
        if not self.is_there:
            raise Unavailable("no link")
        return PlacesHeld(is_known=self.is_known, holder=self.holder if wanted.take else None)


@asynccontextmanager
async def holding(subscriptions: Subscriptions) -> AsyncIterator[tuple[Places, anyio.Event]]:
    """Places that run and hold one, and an event that is set when they are lost."""
    places, lost = Places(ME, subscriptions.answer, log=structlog.get_logger()), anyio.Event()
    places.on_lost.append(lost.set)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(places.run)
        await places.hold(KEY)
        yield places, lost
        tasks.cancel_scope.cancel()


@pytest.mark.rule("B16")
async def test_a_worker_ends_its_connections_before_its_lease_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{_PLACES}.LEASE", 2.3)
    subscriptions = Subscriptions()
    async with holding(subscriptions) as (places, lost):
        taken = anyio.current_time()
        subscriptions.is_there = False
        await lost.wait()
        assert anyio.current_time() - taken < 2.3
        with pytest.raises(NotSent):
            await places.hold(KEY)


@pytest.mark.rule("B16")
async def test_a_worker_ends_its_connections_where_subscriptions_forgot_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{_PLACES}.RENEWS_EVERY", 0.05)
    subscriptions = Subscriptions()
    async with holding(subscriptions) as (_, lost):
        subscriptions.is_known = False
        await lost.wait()


@pytest.mark.rule("B16")
async def test_a_place_that_another_worker_has_names_it_and_a_full_pool_refuses() -> None:
    subscriptions = Subscriptions()
    places = Places(ME, subscriptions.answer, log=structlog.get_logger())
    subscriptions.holder = OTHER
    with pytest.raises(HeldElsewhere) as held:
        await places.hold(KEY)
    assert held.value.worker == OTHER
    subscriptions.holder = None
    with pytest.raises(NotSent):
        await places.hold(KEY)


@pytest.mark.rule("B16")
async def test_a_place_is_asked_for_once_and_freed_with_its_claim() -> None:
    subscriptions = Subscriptions()
    places = Places(ME, subscriptions.answer, log=structlog.get_logger())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(places.run)
        await places.hold(KEY)
        await places.hold(KEY)
        places.free(KEY)
        while len(subscriptions.told) < 2:
            await pause()
        tasks.cancel_scope.cancel()
    taken, freed = subscriptions.told
    assert freed.free == (taken.take,)
