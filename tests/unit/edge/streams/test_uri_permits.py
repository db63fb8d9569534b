"""How long a decision holds, what ends it, and who is asked again."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from structlog.testing import LogCapture

from mcpfleet.contracts.catalog import Listed
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.edge.calls.permit_check import Decision, ReadQuestion
from mcpfleet.edge.calls.read_check import Undecided
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.stream import Stream
from mcpfleet.edge.streams.uri_permit import UriPermit
from mcpfleet.edge.streams.uri_permits import UriPermits
from mcpfleet.telemetry.instruments import StreamInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.views.view import Target
from mcpfleet.wire.notices import resource_updated
from tests.kit.logs import captured
from tests.kit.observing import observers
from tests.kit.waiting import until
from tests.unit.edge.played_edge import tool
from tests.unit.edge.streams.opened import stream

pytestmark = pytest.mark.usefixtures("jumping")

ANN, BOB = Principal(subject="ann"), Principal(subject="bob")
URI = "acct://accounts/ann"
DIGEST = tool("account").digest


@dataclass
class Resource:
    """Decides as a test says."""

    answers: dict[str | None, bool | None] = field(default_factory=lambda: {"ann": True})
    """By subjects; none is no answer."""
    asked: list[tuple[str | None, bool]] = field(default_factory=list)
    """By whom, and whether it counts against the caller's rate."""
    together: list[int] = field(default_factory=list)
    """How many were asked about in each question to its permit."""
    has_permit: bool = False
    gate: anyio.Event | None = None
    """A reading waits for it, where there is one."""
    digest: str = DIGEST

    def find(self, question: ReadQuestion) -> Target | None:
        """All but one endpoint have it."""
        definition = tool("account").model_copy(update={"permit": self.has_permit})
        listed = Listed(pool="bank", digest=self.digest, definition=definition)
        return None if question.endpoint == "other" else Target(listed)

    async def ask(self, question: ReadQuestion, *, counts: bool) -> Decision:
        """Answer."""
        self.asked.append((question.principal.subject, counts))
        answer = self.answers.get(question.principal.subject, False)
        if self.gate is not None:
            await self.gate.wait()
        if answer is None:
            raise Undecided
        return Decision(answer, self.digest)

    async def ask_permit(self, listed: Listed, questions: Sequence[ReadQuestion]) -> list[Decision | None]:
        """Answer together."""
        self.together.append(len(questions))
        answers = [self.answers.get(each.principal.subject, False) for each in questions]
        if self.gate is not None:
            await self.gate.wait()
        return [None if answer is None else Decision(answer, listed.digest) for answer in answers]


@dataclass
class Made:
    """The permits of a test, and what was heard of them."""

    permits: UriPermits
    resource: Resource
    heard: list[tuple[bool | None, bool]] = field(default_factory=list)

    async def decide(self, permits: list[UriPermit]) -> None:
        """Have it decided, and wait for that."""
        await self.permits.wait(self.permits.want(permits))

    def watch(self, principal: Principal = ANN) -> tuple[Stream, UriPermit]:
        """A stream of somebody that watches the URI."""
        opened = stream().stream
        opened.lease.principal = principal
        [permit] = self.permits.watch(opened, [URI])
        return opened, permit


@asynccontextmanager
async def made(resource: Resource | None = None, **settings: Any) -> AsyncIterator[Made]:
    resource = resource or Resource()
    chosen: dict[str, Any] = {"permission_lasts": 30.0} | settings
    instruments = StreamInstruments(Metrics())
    log = captured(LogCapture())
    permits = UriPermits(resource, EdgeSettings(**chosen), instruments=instruments, observers=observers(), log=log)
    found = Made(permits, resource)
    permits.on_decision(lambda permit, has_change: found.heard.append((permit.may_read, has_change)))
    async with anyio.create_task_group() as tasks:
        await tasks.start(permits.run)
        yield found
        tasks.cancel_scope.cancel()


@pytest.mark.rule("S22")
async def test_a_change_asks_once_waits_and_is_told_by_the_decision() -> None:
    async with made() as it:
        _, permit = it.watch()
        assert not it.permits.let_pass(permit, DIGEST)
        assert not it.permits.let_pass(permit, DIGEST)
        await until(lambda: it.heard == [(True, True)])
        assert it.resource.asked == [("ann", True)]
        assert it.permits.let_pass(permit, DIGEST)
        assert not it.permits.let_pass(permit, "other"), "another definition has not decided"


@pytest.mark.rule("S22")
async def test_a_decision_lapses_and_is_renewed_without_a_change() -> None:
    """It does not count against the caller's rate, and nobody is told of a renewal that changes nothing."""
    async with made(permission_lasts=0.1) as it:
        _, permit = it.watch()
        await it.decide([permit])
        began = time.monotonic()
        await until(lambda: len(it.resource.asked) >= 4)
        assert time.monotonic() - began >= 0.2
        assert set(it.resource.asked[1:]) == {("ann", False)}
        assert it.heard == [(True, False)]


@pytest.mark.rule("S22")
async def test_a_decision_that_has_lapsed_lets_no_change_pass() -> None:
    """Its renewal hangs: the change waits for that."""
    resource = Resource()
    async with made(resource, permission_lasts=0.2) as it:
        _, permit = it.watch()
        await it.decide([permit])
        resource.gate = anyio.Event()
        await until(lambda: len(resource.asked) >= 2 and time.monotonic() >= permit.until)
        assert not it.permits.let_pass(permit, DIGEST)
        assert permit.has_change
        resource.gate.set()
        await until(lambda: not permit.has_change)
        assert it.heard == [(True, False), (True, True)]


@pytest.mark.rule("S22")
async def test_what_was_asked_before_a_permission_was_taken_back_does_not_count() -> None:
    """S3: the resource is asked again, under the number that holds now."""
    resource = Resource(gate=anyio.Event())
    async with made(resource) as it:
        _, permit = it.watch()
        it.permits.let_pass(permit, DIGEST)
        await until(lambda: resource.asked)
        resource.answers["ann"] = False
        it.permits.take_back(lambda principal: principal == ANN)
        assert resource.gate is not None
        resource.gate.set()
        await until(lambda: it.heard)
        assert (len(resource.asked), it.heard) == (2, [(False, True)])


@pytest.mark.rule("S22")
async def test_a_revocation_takes_back_the_decisions_of_those_whom_it_concerns() -> None:
    async with made(Resource({"ann": True, "bob": True})) as it:
        (_, anns), (_, bobs) = it.watch(ANN), it.watch(BOB)
        await it.decide([anns, bobs])
        it.permits.take_back(lambda principal: principal == ANN)
        assert not it.permits.is_known(anns)
        assert it.permits.is_known(bobs)
        it.permits.take_back(lambda _: True)
        assert not it.permits.is_known(bobs)


@pytest.mark.rule("S22")
async def test_silence_is_asked_again_ever_later_and_a_failure_decides_nothing() -> None:
    resource = Resource({"ann": None})
    async with made(resource) as it:
        _, permit = it.watch()
        for _ in range(3):
            await it.decide([permit])
            assert not it.permits.let_pass(permit, DIGEST)
        assert len(resource.asked) == 1, "it did not answer just now"
        assert 0.5 < permit.retry_at - time.monotonic() <= 1
        permit.retry_at = 0.0
        await it.decide([permit])
        assert 1.5 < permit.retry_at - time.monotonic() <= 2
        resource.answers["ann"], permit.retry_at = True, 0.0
        await it.decide([permit])
        assert it.heard == [(True, True)]


@pytest.mark.rule("S22")
async def test_who_may_read_again_is_told_once_and_what_comes_into_view_is_not() -> None:
    async with made(Resource({"ann": False})) as it:
        _, permit = it.watch()
        await it.decide([permit])
        assert permit.is_refused
        it.resource.answers["ann"] = True
        permit.until = 0.0
        await it.decide([permit])
        assert it.heard == [(False, False), (True, True)]


@pytest.mark.rule("T12")
async def test_what_is_not_in_view_is_asked_of_nobody_and_is_not_refused() -> None:
    async with made() as it:
        opened = stream().stream
        opened.endpoint = "other"
        [permit] = it.permits.watch(opened, [URI])
        await it.decide([permit])
        assert (it.resource.asked, permit.may_read, permit.is_refused) == ([], False, False)


@pytest.mark.rule("S22")
async def test_decisions_that_nobody_watches_are_kept_within_a_bound_and_their_time() -> None:
    """Invariant 7."""
    async with made(Resource({None: True}), read_checks_kept=2) as it:
        for number in range(5):
            assert await it.permits.may_read(ReadQuestion("mcp", ANONYMOUS, f"x://{number}"))
        assert len(it.resource.asked) == 5
        assert await it.permits.may_read(ReadQuestion("mcp", ANONYMOUS, "x://4"))
        assert len(it.resource.asked) == 5
        assert await it.permits.may_read(ReadQuestion("mcp", ANONYMOUS, "x://0"))
        assert len(it.resource.asked) == 6


async def test_a_stream_that_leaves_leaves_nothing_behind() -> None:
    """Also where its resource is just being asked, or waits for that."""
    resource = Resource({"ann": None}, gate=anyio.Event())
    async with made(resource) as it:
        for principal in (ANN, BOB):
            for _ in range(3):
                opened, permit = it.watch(principal)
                it.permits.let_pass(permit, DIGEST)
                it.permits.unwatch(opened, permit)
        assert resource.gate is not None
        resource.gate.set()
        await until(lambda: not it.permits._callers)


@pytest.mark.rule("S22")
async def test_requests_that_wait_for_one_decision_are_one_reading() -> None:
    resource = Resource(gate=anyio.Event())
    found: list[bool] = []
    async with made(resource) as it, anyio.create_task_group() as tasks:

        async def ask() -> None:
            found.append(await it.permits.may_read(ReadQuestion("mcp", ANN, URI)))

        for _ in range(5):
            tasks.start_soon(ask)
        await until(lambda: resource.asked)
        assert resource.gate is not None
        resource.gate.set()
        await until(lambda: found == [True] * 5)
        assert len(resource.asked) == 1


@pytest.mark.rule("S22")
async def test_a_change_of_the_catalog_has_those_asked_again_whose_definition_changed() -> None:
    async with made() as it:
        _, permit = it.watch()
        await it.decide([permit])
        it.permits.catalog_changed("mcp")
        assert it.permits.is_known(permit), "it is the same"
        it.resource.digest = "0" * 32
        it.permits.catalog_changed("mcp")
        assert not it.permits.is_known(permit)
        await until(lambda: permit.definition == "0" * 32)
        assert it.permits.is_known(permit)
        assert it.resource.asked == [("ann", True), ("ann", False)]


@pytest.mark.rule("S22")
async def test_what_is_not_in_view_takes_no_time_of_the_renewals() -> None:
    """Their rate bounds readings: one a second here, and none of these twenty is one."""
    async with made(permission_lasts=0.1, read_checks_rate=1) as it:
        absent = stream().stream
        absent.endpoint = "other"
        for number in range(20):
            it.permits.want(it.permits.watch(absent, [f"x://{number}"]))
        _, permit = it.watch()
        await it.decide([permit])
        await until(lambda: len(it.resource.asked) >= 2, within=5)


@pytest.mark.rule("X50", "X51")
async def test_a_permit_is_asked_together_and_not_by_time_alone() -> None:
    async with made(Resource({"ann": True, "bob": True}, has_permit=True), permission_lasts=0.2) as it:
        permits = [it.watch(Principal(subject=name))[1] for name in ("ann", "bob", "cid")]
        await it.decide(permits)
        assert (it.resource.together, it.resource.asked) == ([3], [])
        assert [permit.may_read for permit in permits] == [True, True, False]
        await anyio.sleep(0.5)
        assert it.resource.together == [3], "time alone asks nobody"
        passed = [it.permits.let_pass(permit, DIGEST) for permit in permits]
        assert passed == [False] * 3
        await until(lambda: it.heard.count((True, True)) == 2)
        assert it.resource.together == [3, 2], "a refusal has ended the third"


@pytest.mark.rule("X52", "X53")
async def test_a_fenced_pool_takes_its_changes_out_of_streams_until_its_permits_are_asked_again() -> None:
    resource = Resource({"ann": True}, has_permit=True)
    async with made(resource) as it:
        opened, permit = it.watch()
        await it.decide([permit])
        opened.offer(URI, resource_updated(URI))
        generation = opened.grant.generation
        resource.gate = anyio.Event()
        it.permits.fence_pool("other", ())
        it.permits.fence_pool("bank", ("else://where",))
        assert it.permits.is_known(permit)
        it.permits.fence_pool("bank", ())
        assert opened.grant.generation > generation
        assert opened.lift() == {}, "it waits for the permit"
        await until(lambda: len(resource.together) == 2)
        it.permits.fence_pool("bank", (URI,))  # what was asked before does not count
        resource.gate.set()
        await until(lambda: (True, True) in it.heard)
        assert resource.together == [1, 1, 1]


@pytest.mark.rule("X51")
async def test_a_silent_permit_is_asked_again_while_a_change_waits() -> None:
    resource = Resource({"ann": None}, has_permit=True)
    async with made(resource, permission_lasts=0.2) as it:
        _, permit = it.watch()
        assert not it.permits.let_pass(permit, DIGEST)
        await until(lambda: len(resource.together) >= 2)
        resource.answers["ann"] = True
        await until(lambda: it.heard == [(True, True)])
