"""Keeps of which URIs each caller may receive changes: a read check asks the URI's resource (S21, S22).

All streams and sessions of a caller share one decision for each URI. It holds as long as a lease (N6). While it holds,
changes are sent at once. Later a change waits, as one bit, for a new check: no answer delays it, a refusal drops it.

A resource without a permit decides by a reading, which costs a call. So readings are renewed by time, a few each
second. A permit is asked again only before a change is sent, in batches, and its refusal ends the URI for the
streams that watch it (X51).
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from typing import Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.hints import OwnChange
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.edge.calls.permit_check import Decision, ReadQuestion
from mcpfleet.edge.calls.read_check import Undecided
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.permit_batches import PermitBatches
from mcpfleet.edge.streams.read_queue import ReadQueue
from mcpfleet.edge.streams.stream import Stream
from mcpfleet.edge.streams.uri_permit import CallerPermits, GrantRecord, PermitOf, ReadChecker, UriPermit
from mcpfleet.process.observers import Observers
from mcpfleet.telemetry.instruments import StreamInstruments

_ROUNDS: Final = 20
"""Searches for decisions to renew, within the time that a decision holds."""
_SETTLES: Final = 0.05
"""Seconds in which several snapshots count as one change."""
_TURN: Final = 256
"""Decisions that are examined in one turn of the event loop."""
_RETRY: Final = 1.0
"""Seconds before a failed check is repeated; doubled after each further failure."""


class UriPermits:
    """Keeps the permits of watched URIs, and a bounded number of others."""

    def __init__(
        self,
        checker: ReadChecker,
        settings: EdgeSettings,
        *,
        instruments: StreamInstruments,
        observers: Observers,
        log: FilteringBoundLogger,
    ) -> None:
        self._grants = GrantRecord(instruments, observers)
        self._checker = checker
        self._lasts = settings.permission_lasts
        self._timeout = settings.read_checked_within
        self._pause = 1 / settings.read_checks_rate
        self._kept = settings.read_checks_kept
        self._log = log
        self._callers: dict[tuple[str, Principal], CallerPermits] = {}
        self._idle: OrderedDict[UriPermit, None] = OrderedDict()
        """Permits that no stream watches, the longest idle first."""
        self._queue: ReadQueue[UriPermit] = ReadQueue(self._decide)
        self._batches: PermitBatches[PermitOf, UriPermit] = PermitBatches(self._decide_together)
        self._changed: set[str] = set()
        """Endpoints with a new snapshot."""
        self._catalogs: Counter[str] = Counter()
        """How many snapshots each endpoint has had."""
        self._anonymous: dict[str, CallerPermits] = {}
        """By endpoints, since thousands of streams may have an anonymous caller."""
        self._has_changed = anyio.Event()
        self._listeners: list[Callable[[UriPermit, bool], None]] = []
        instruments.read_checks_waiting.observe(lambda: len(self._queue) + len(self._batches))

    def on_decision(self, listener: Callable[[UriPermit, bool], None]) -> None:
        """Call a listener with each decision that differs from the last, and whether a change waited for it."""
        self._listeners.append(listener)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Make decisions, and renew those on watched URIs, until cancelled."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._queue.run)
            await tasks.start(self._batches.run)
            tasks.start_soon(self._renew)
            task_status.started()

    # -- watching -----------------------------------------------------------------------------------------------------

    def watch(self, stream: Stream, uris: Collection[str | OwnChange]) -> list[UriPermit]:
        """Add a stream to its principal's permits for URIs or own keys until `unwatch`; this begins no check."""
        if not uris:
            return []
        caller = self._caller(stream.endpoint, stream.lease.principal)
        permits = [self._permit(caller, uri) for uri in uris]
        for permit in permits:
            permit.streams.add(stream)
            self._grants.note(permit)
            self._idle.pop(permit, None)
        return permits

    def unwatch(self, stream: Stream, permit: UriPermit) -> None:
        """Remove a stream from a permit."""
        permit.streams.discard(stream)
        self._grants.note(permit)
        if not permit.streams:
            self._release(permit)

    def _caller(self, endpoint: str, principal: Principal) -> CallerPermits:
        if principal is ANONYMOUS and (caller := self._anonymous.get(endpoint)) is not None:
            return caller
        key = endpoint, principal
        caller = self._callers.get(key) or self._callers.setdefault(key, CallerPermits(key))
        if principal is ANONYMOUS:
            self._anonymous[endpoint] = caller
        return caller

    def _permit(self, caller: CallerPermits, uri: str | OwnChange) -> UriPermit:
        permit = caller.permits.get(uri)
        if permit is None:
            permit = caller.permits[uri] = UriPermit(caller, uri)
        return permit

    def _release(self, permit: UriPermit) -> None:
        """Keep a permit without streams for a while, where it has a decision or a running check."""
        permit.has_change = False
        if permit.pool is not None and not permit.awaited and self._cancel(permit, permit.pool):
            self._end_check(permit)
        if permit.pool is not None:
            return
        if permit.until <= time.monotonic():
            self._forget(permit)
            return
        self._idle[permit] = None
        while len(self._idle) > self._kept:
            self._forget(self._idle.popitem(last=False)[0])

    def _cancel(self, permit: UriPermit, pool: str) -> bool:
        """Remove a check that waits; return False where it runs."""
        return self._batches.cancel(permit) if permit.by_permit else self._queue.cancel(permit, pool, permit.caller)

    def _forget(self, permit: UriPermit) -> None:
        self._idle.pop(permit, None)
        permit.caller.permits.pop(permit.uri, None)
        if not permit.caller.permits:
            self._callers.pop(permit.caller.key, None)
            if self._anonymous.get(permit.caller.key[0]) is permit.caller:
                del self._anonymous[permit.caller.key[0]]

    # -- decisions ---------------------------------------------------------------------------------------------------

    def let_pass(self, permit: UriPermit, definition: str) -> bool:
        """Let a change pass where its caller may read; hold it and ask where that is unknown. Return whether it does.

        Args:
            permit: the receiving caller's.
            definition: the digest of the definition that serves the URI to it now.
        """
        if time.monotonic() < permit.until and permit.definition == definition:
            return permit.may_read is True
        if permit.has_ended(definition):
            return False
        permit.has_change = True
        self._ask(permit)
        return False

    def is_known(self, permit: UriPermit) -> bool:
        """Return whether the last decision holds, and is one of the current definition."""
        if time.monotonic() >= permit.until:
            return False
        catalog = self._catalogs[permit.caller.key[0]]
        if permit.catalog != catalog:
            try:
                target = self._checker.find(permit.question)
            except Undecided:
                return False
            if permit.definition != (None if target is None else target.listed.digest):
                return False
            permit.catalog = catalog
        return True

    def want(self, permits: Iterable[UriPermit]) -> list[UriPermit]:
        """Begin checks where no decision holds; return the permits whose checks can be waited for."""
        unknown = [permit for permit in permits if not self.is_known(permit)]
        for permit in unknown:
            self._ask(permit)
        return [permit for permit in unknown if permit.outcome is not None]

    async def wait(self, permits: Iterable[UriPermit]) -> None:
        """Wait until the checks of permits have ended, at most MCPFLEET_READ_CHECKED_WITHIN."""
        with anyio.move_on_after(self._timeout):
            for permit in permits:
                if permit.outcome is not None:
                    await permit.outcome.wait()

    async def may_read(self, question: ReadQuestion) -> bool:
        """Return whether a caller may read a URI; raise `Undecided` where there was no decision in time."""
        permit = self._permit(self._caller(question.endpoint, question.principal), question.uri)
        permit.awaited += 1
        try:
            await self.wait(self.want([permit]))
            if not self.is_known(permit):
                raise Undecided
            return permit.may_read is True
        finally:
            permit.awaited -= 1
            if not permit.streams:
                self._release(permit)

    def take_back(self, matches: Callable[[Principal], bool]) -> None:
        """End the decisions on callers whose rights may have ended; new checks follow, some each second.

        Args:
            matches: returns whether a caller's rights may have ended.
        """
        for caller in list(self._callers.values()):
            if matches(caller.key[1]):
                for permit in list(caller.permits.values()):
                    self._fence(permit)

    def _fence(self, permit: UriPermit) -> None:
        """Let no change of a URI pass before a new check: one that waits in a stream waits for the check instead."""
        permit.generation += 1
        permit.retry_at = permit.until = -math.inf
        if permit in self._idle:
            self._forget(permit)
            return
        for stream in permit.streams:
            if stream.hold_back(permit.name):
                permit.has_change = True
        if permit.has_change:
            self._ask(permit)

    def fence_pool(self, pool: str, uris: Collection[str]) -> None:
        """Let no change of a pool's URIs pass before the pool's permits were asked again (X52).

        Args:
            pool: its name.
            uris: the concerned URIs; none for all of the pool's.
        """
        for caller in list(self._callers.values()):
            found = [caller.permits[uri] for uri in uris if uri in caller.permits] if uris else caller.permits.values()
            for permit in [each for each in found if each.by_permit and each.served_by == pool]:
                self._fence(permit)

    def catalog_changed(self, endpoint: str) -> None:
        """Note a new snapshot: other definitions may serve an endpoint's URIs, so new checks follow."""
        self._catalogs[endpoint] += 1
        self._changed.add(endpoint)
        self._has_changed.set()

    # -- checks -------------------------------------------------------------------------------------------------------

    def _ask(self, permit: UriPermit, *, renews: bool = False) -> bool:
        """Queue a check, unless one has failed just now; return whether one more check waits."""
        if time.monotonic() < permit.retry_at:
            return False
        permit.counts = not renews or (permit.counts and permit.pool is not None)
        if permit.pool is not None:
            if not renews and not permit.by_permit:
                self._queue.hasten(permit, permit.pool, permit.caller)
            return False
        try:
            target = self._checker.find(permit.question)
        except Undecided:
            self._note_failure(permit)
            return False
        if target is None:  # the caller's view has nothing there, which needs no check
            self._end_check(permit)
            self._take(permit, Decision(may_read=False, definition=None), time.monotonic())
            return False
        permit.pool = permit.served_by = target.listed.pool
        permit.outcome = permit.outcome or anyio.Event()
        permit.by_permit = target.listed.definition.permit
        if permit.by_permit:
            self._batches.add(PermitOf(target.listed.pool, target.listed.digest), permit)
            return False
        self._queue.add(permit, permit.pool, permit.caller, renews=renews)
        return True

    async def _decide(self, permit: UriPermit) -> None:
        """Run a check, and repeat it where rights may have ended meanwhile."""
        generation, began = -1, 0.0
        decision: Decision | None = None
        try:
            while generation != permit.generation and (permit.streams or permit.awaited):
                generation, began = permit.generation, time.monotonic()
                decision = await self._checker.ask(permit.question, counts=permit.counts)
        except Undecided:
            decision = None
        except Exception:
            decision = None
            self._log.exception("read check failed")
        self._end_check(permit)
        if decision is not None and generation == permit.generation:
            self._take(permit, decision, began)
        else:
            self._note_failure(permit)
        if not permit.streams and not permit.awaited:
            self._release(permit)

    def _note_failure(self, permit: UriPermit) -> None:
        """Let a check be repeated after a pause."""
        permit.failures += 1
        permit.retry_at = time.monotonic() + min(_RETRY * 2 ** (permit.failures - 1), self._lasts)

    async def _decide_together(self, asked: PermitOf, permits: list[UriPermit]) -> None:
        """Ask a permit about many, and again about those whose rights may have ended meanwhile."""
        generations, began = [permit.generation for permit in permits], time.monotonic()
        decisions: list[Decision | None] = [None] * len(permits)
        try:
            target = self._checker.find(permits[0].question)
            if target is not None and (target.listed.pool, target.listed.digest) == asked:
                decisions = await self._checker.ask_permit(target.listed, [permit.question for permit in permits])
            else:  # a rollout has replaced it meanwhile
                generations = [-1] * len(permits)
        except Undecided:
            pass  # asked again after a pause
        except Exception:
            self._log.exception("permit not asked")
        for permit, generation, decision in zip(permits, generations, decisions, strict=True):
            if permit.generation != generation and (permit.streams or permit.awaited):
                permit.pool, permit.retry_at = None, -math.inf
                self._ask(permit)
                continue
            self._end_check(permit)
            if decision is not None and permit.generation == generation:
                self._take(permit, decision, began)
            else:
                self._note_failure(permit)
            if not permit.streams and not permit.awaited:
                self._release(permit)

    @staticmethod
    def _end_check(permit: UriPermit) -> None:
        """Note the end of a permit's check."""
        permit.pool = None
        if permit.outcome is not None:
            permit.outcome.set()
            permit.outcome = None

    def _take(self, permit: UriPermit, decision: Decision, began: float) -> None:
        """Apply a decision. A caller who could not read before, and can now, may have missed a change."""
        is_other, was_refused = permit.may_read is not decision.may_read, permit.is_refused
        permit.may_read, permit.definition = decision
        self._grants.note(permit)
        permit.catalog = -1
        # A check may take longer than its decision holds: the change that waits is sent nonetheless.
        permit.until = max(began + self._lasts, time.monotonic() + self._lasts / _ROUNDS)
        permit.failures, permit.retry_at = 0, -math.inf
        has_change, permit.has_change = permit.has_change or was_refused, False
        if permit.streams and (is_other or has_change):
            for listener in self._listeners:
                listener(permit, has_change)

    async def _renew(self) -> None:
        """Renew decisions on watched URIs, until cancelled: a number a second, others at their next change."""
        while True:
            with anyio.move_on_after(self._lasts / _ROUNDS):
                await self._has_changed.wait()
                await anyio.sleep(_SETTLES)
            changed, self._changed, self._has_changed = self._changed, set(), anyio.Event()
            permits = [permit for caller in self._callers.values() for permit in caller.permits.values()]
            for number, permit in enumerate(permits, 1):
                is_due = permit.streams and permit.pool is None and self._is_due(permit, changed)
                if is_due and self._ask(permit, renews=True):
                    await anyio.sleep(self._pause)
                if number % _TURN == 0:
                    await anyio.lowlevel.checkpoint()

    def _is_due(self, permit: UriPermit, changed: Collection[str]) -> bool:
        if permit.may_read is None and not permit.failures:
            return False  # nothing to renew: the request that watches it is about to ask, and is counted
        if permit.caller.key[0] in changed:
            try:
                target = self._checker.find(permit.question)
            except Undecided:
                return False
            return (target is None or not target.listed.definition.permit) and not self.is_known(permit)
        if permit.by_permit:  # asked again before a change is sent, and after silence
            return (permit.has_change or permit.may_read is None) and permit.until <= time.monotonic()
        return permit.until <= time.monotonic()
