"""Asking a worker whether a caller may read, over the bus: what its end decides, and what decides nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcpfleet.contracts.authorization import AuthorizationClient
from mcpfleet.contracts.call import BAD_PARAMS, NOT_FOUND, OUTCOME_ONLY, REFUSED, CallBody, FrameKind
from mcpfleet.contracts.catalog import CatalogClient, Listed, Snapshot
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.edge.calls.permit_check import Decision, PermitCheck, ReadQuestion
from mcpfleet.edge.calls.read_check import ReadCheck, Undecided
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.identity.limits import Limits
from mcpfleet.telemetry.instruments import StreamInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.telemetry.spans import Tracer
from tests.contract.bus.fabric import Fabric
from tests.contract.calls.edge_harness import DEFINITION, POOL, EdgeHarness, Taken, edge_harness, large
from tests.kit.waiting import until

URI = "acct://accounts/ann"
ANN = Principal(subject="ann", scopes=("read",))


class Checking:
    """Questions, and what was decided."""

    def __init__(self, at: EdgeHarness) -> None:
        self.at = at
        settings, log = at.settings, at.fabric.logger
        snapshots = Snapshots(
            at.edge, CatalogClient(at.edge), settings.endpoints, settings=settings, tracer=Tracer(), log=log
        )
        wire = {"uriTemplate": "acct://accounts/{name}", "name": "account"}
        template = Definition(kind="template", name="acct://accounts/{name}", wire=wire, scopes=("read",))
        listed = (Listed(pool=POOL, digest=DEFINITION, definition=template),)
        snapshot = Snapshot(endpoint="mcp", number=1, name="bank", version="1", listed=listed)
        snapshots._take(snapshots._endpoints["mcp"], snapshot)
        limits = Limits(AuthorizationClient(at.edge), settings, edge="0" * 16, log=log)
        instruments = StreamInstruments(Metrics())
        permits = PermitCheck(at.edge, settings, instruments=instruments, log=log)
        self.check = ReadCheck(at.queue, snapshots, limits, settings, permits=permits, instruments=instruments, log=log)
        self.found: list[Decision | None] = []

    async def ask(self, principal: Principal = ANN, uri: str = URI) -> None:
        """Ask, and keep the decision; none where nobody decided."""
        try:
            self.found.append(await self.check.ask(ReadQuestion("mcp", principal, uri), counts=True))
        except Undecided:
            self.found.append(None)

    async def asked(self) -> Taken:
        """Ask, and hand out the call as the worker has it."""
        self.at.tasks.start_soon(self.ask)
        return await self.at.worker.call(len(self.at.worker.taken))

    async def decided(self) -> Decision | None:
        """Wait for the decision."""
        await until(lambda: self.found)
        return self.found.pop()


@asynccontextmanager
async def checking(fabric: Fabric, **settings: Any) -> AsyncIterator[Checking]:
    async with edge_harness(fabric, **settings) as at:
        yield Checking(at)


@pytest.mark.rule("S21")
async def test_a_reading_is_the_callers_and_says_that_its_result_is_not_wanted(fabric: Fabric) -> None:
    async with checking(fabric) as made:
        taken = await made.asked()
        body = CallBody.read(taken.message.body)
        assert (body.principal, body.uri, body.capabilities, taken.flags) == (ANN, URI, {}, OUTCOME_ONLY)
        made.at.worker.frame(taken, FrameKind.RESULT)
        assert await made.decided() == Decision(may_read=True, definition=DEFINITION)
        assert len(made.at.calls) == 0


@pytest.mark.rule("S21")
@pytest.mark.parametrize("line", [NOT_FOUND, BAD_PARAMS, REFUSED, "1 authored", "1 lacking roots"])
async def test_an_error_on_purpose_is_a_refusal(fabric: Fabric, line: str) -> None:
    async with checking(fabric) as made:
        made.at.worker.frame(await made.asked(), FrameKind.ERROR, b"{}", line)
        assert await made.decided() == Decision(may_read=False, definition=DEFINITION)


@pytest.mark.rule("S21")
async def test_a_question_to_the_caller_is_no_permission(fabric: Fabric) -> None:
    async with checking(fabric) as made:
        made.at.worker.frame(await made.asked(), FrameKind.ASK)
        assert await made.decided() == Decision(may_read=False, definition=DEFINITION)


@pytest.mark.rule("S22")
async def test_a_failure_and_silence_decide_nothing_and_silence_is_cancelled(fabric: Fabric) -> None:
    async with checking(fabric, read_checked_within=0.5) as made:
        made.at.worker.frame(await made.asked(), FrameKind.ERROR, b"{}")
        assert await made.decided() is None
        made.at.worker.accept(await made.asked())
        assert await made.decided() is None
        await made.at.worker.cancelled()
        assert len(made.at.calls) == 0


@pytest.mark.rule("S22")
async def test_a_busy_pool_is_waited_for_within_the_bound(fabric: Fabric) -> None:
    async with checking(fabric) as made:
        made.at.worker.busy(await made.asked())
        made.at.worker.frame(await made.at.worker.call(1), FrameKind.RESULT)
        assert await made.decided() == Decision(may_read=True, definition=DEFINITION)


@pytest.mark.rule("S21")
async def test_an_older_workers_large_result_is_not_fetched_and_is_dropped_there(fabric: Fabric) -> None:
    async with checking(fabric) as made:
        taken = await made.asked()
        large(made.at, taken, "x" * 1000)
        assert await made.decided() == Decision(may_read=True, definition=DEFINITION)
        _, cancel = await made.at.worker.cancelled()
        assert cancel.call == taken.id


@pytest.mark.rule("T12")
async def test_what_is_not_in_view_or_lacks_a_scope_is_asked_of_nobody(fabric: Fabric) -> None:
    async with checking(fabric) as made:
        with anyio.fail_after(5):
            await made.ask(uri="other://1")
            await made.ask(Principal(subject="bob"))
        assert made.found == [Decision(False, None), Decision(False, DEFINITION)]
        assert made.at.worker.taken == []
        made.at.tasks.start_soon(made.ask, ANONYMOUS)  # where nobody needs a credential, nobody needs a scope
        await made.at.worker.call()
