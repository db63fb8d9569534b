"""Leases with an end: renewed in time, in bounded numbers; a stream ends with its lease."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
import structlog

from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.streams.lease import RenewalUnanswered, StreamLease
from mcpfleet.edge.streams.renewals import AT_ONCE, Renewals
from mcpfleet.edge.streams.stream import Exit, Stream
from mcpfleet.telemetry.instruments import StreamInstruments
from mcpfleet.telemetry.metrics import Metrics
from tests.kit.waiting import until
from tests.unit.edge.streams.opened import stream

pytestmark = pytest.mark.usefixtures("jumping")

ANN = Principal(subject="ann")


class TestedLease(StreamLease):
    """A lease that each renewal extends, as long as the test lets it."""

    __test__ = False

    def __init__(self, seconds: float, answer: Callable[[], bool] = lambda: True) -> None:
        super().__init__(ANN)
        self.asked_at = time.monotonic()
        self.seconds = seconds
        self.expires = time.monotonic() + seconds
        self.answer = answer
        self.asked: list[float] = []
        self.running = 0
        self.most = 0
        self.gate = anyio.Event()
        self.gate.set()

    async def renew(self) -> bool:
        self.asked.append(time.monotonic())
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gate.wait()
            goes_on = self.answer()
            if goes_on:
                self.expires = time.monotonic() + self.seconds
            return goes_on
        finally:
            self.running -= 1


@asynccontextmanager
async def renewing(refresh: Callable[[Stream], None] = lambda _: None, longest: float = 2.0) -> AsyncIterator[Renewals]:
    renewals = Renewals(
        longest=longest, refresh=refresh, renewals=StreamInstruments(Metrics()).renewals, log=structlog.get_logger()
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(renewals.run)
        yield renewals
        tasks.cancel_scope.cancel()


def leased(lease: TestedLease) -> Stream:
    return stream(lease=lease).stream


@pytest.mark.rule("N13")
async def test_a_lease_is_renewed_from_half_of_its_life_on() -> None:
    """The lease lasts so long that what the machine is late by does not count."""
    refreshed: list[Stream] = []
    async with renewing(refreshed.append, longest=60.0) as renewals:
        lease = TestedLease(40.0)
        one, began = leased(lease), time.monotonic()
        renewals.add(one)
        await until(lambda: len(refreshed) >= 2, within=300)
        assert 20 <= lease.asked[0] - began < 35
        assert one.holds_until > lease.asked[0]
        assert not one.is_over
        renewals.remove(one)
        assert renewals._timers == {}


@pytest.mark.rule("N6")
async def test_no_lease_holds_longer_than_an_edge_lets_it() -> None:
    async with renewing(longest=0.4) as renewals:
        lease = TestedLease(3600)
        one = leased(lease)
        renewals.add(one)
        assert one.holds_until <= time.monotonic() + 0.4
        await until(lambda: lease.asked, within=5)
        renewals.remove(one)


async def test_a_lease_without_an_end_is_never_renewed() -> None:
    async with renewing() as renewals:
        one = stream(lease=StreamLease(ANN)).stream
        renewals.add(one)
        assert one.holds_until == math.inf
        assert renewals._timers == {}


@pytest.mark.rule("S1")
async def test_a_refusal_ends_the_stream() -> None:
    async with renewing() as renewals:
        one = leased(TestedLease(0.2, lambda: False))
        renewals.add(one)
        await until(lambda: one.is_over, within=5)
        assert one._exit is Exit.LEASE_ENDED


@pytest.mark.rule("S1")
async def test_a_failed_renewal_ends_the_stream() -> None:
    async with renewing() as renewals:
        one = leased(TestedLease(0.2, lambda: bool(1 / 0)))
        renewals.add(one)
        await until(lambda: one.is_over, within=5)


@pytest.mark.rule("K19")
async def test_an_unanswered_renewal_is_repeated_until_the_lease_ends() -> None:
    def nobody() -> bool:
        raise RenewalUnanswered

    opened = stream(lease=TestedLease(0.5, nobody))
    lease = opened.stream.lease
    assert isinstance(lease, TestedLease)
    async with renewing() as renewals, anyio.create_task_group() as tasks:
        renewals.add(opened.stream)
        tasks.start_soon(opened.run)
        await opened.exchange.until(lambda: opened.exchange.is_over)
        renewals.remove(opened.stream)
    assert opened.ends == [Exit.LEASE_ENDED]
    assert len(lease.asked) >= 2


@pytest.mark.rule("N12")
async def test_a_bounded_number_of_renewals_runs_at_once() -> None:
    async with renewing() as renewals:
        lease = TestedLease(60)
        lease.gate = anyio.Event()
        streams = [leased(lease) for _ in range(3 * AT_ONCE)]
        for one in streams:
            renewals.add(one)
            renewals.renew_now(one)
        await until(lambda: lease.running == AT_ONCE, within=5)
        await anyio.wait_all_tasks_blocked()
        lease.gate.set()
        await until(lambda: len(lease.asked) == len(streams), within=5)
        assert lease.most == AT_ONCE
        for one in streams:
            renewals.remove(one)


@pytest.mark.rule("N15", "N14")
async def test_a_wave_takes_as_many_turns_as_its_owners_fill() -> None:
    """3,000 owners whose answers take 50 ms each are done in 9.4 s of 29; here their turns are counted."""
    owners, turns = 480, 0
    async with renewing() as renewals:
        lease = TestedLease(60)
        lease.gate = anyio.Event()
        streams = [leased(lease) for _ in range(owners)]
        for one in streams:
            renewals.renew_now(one)
        while len(lease.asked) < owners:
            await until(lambda: lease.running == AT_ONCE, within=5)
            answered, lease.gate = lease.gate, anyio.Event()
            answered.set()
            turns += 1
            await anyio.wait_all_tasks_blocked()
        lease.gate.set()
        for one in streams:
            renewals.remove(one)
    assert turns == owners / AT_ONCE - 1, "the last one is under way"


@pytest.mark.rule("N13")
@pytest.mark.parametrize("seconds", [0.1, 1.0, 60.0, 3600.0])
async def test_the_stagger_is_small(seconds: float) -> None:
    async with renewing(longest=2 * seconds) as renewals:
        one = leased(TestedLease(seconds))
        renewals.add(one)
        when = renewals._timers[one].when() - anyio.current_time()
        assert seconds / 2 - 0.05 <= when <= seconds / 2 + min(1.0, seconds / 20)
        renewals.remove(one)
