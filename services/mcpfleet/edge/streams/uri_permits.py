"""Keeps which URIs each caller may hear of: a URI's resource is asked whether the caller may read it (S21, S22).

A decision is one caller's on one URI, shared by all streams and sessions of the caller. It holds for a permission's
time (N6). While it holds, changes are told without a question. Then a change waits, as one bit, until the resource was
asked again: silence delays it, a refusal drops it.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

import anyio
import anyio.lowlevel
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.edge.calls.read_check import Decision, ReadQuestion, Undecided
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.read_queue import ReadQueue
from mcpfleet.edge.streams.stream import Stream
from mcpfleet.telemetry.instruments import StreamInstruments
from mcpfleet.views.view import Target

_LOOKS: Final = 20
"""How often within a permission's time is looked whose decisions are to be renewed."""
_SETTLES: Final = 0.05
"""Seconds in which several changes of the catalog become one."""
_TURN: Final = 256
"""Decisions that are looked at in one turn of the event loop."""
_RETRY: Final = 1.0
"""Seconds before what was not decided is asked again; twice as many after each further time."""


class Decides(Protocol):
    """Decides reads: the resource's handler, or whatever else can say so for it."""

    def find(self, question: ReadQuestion) -> Target | None:
        """Find what serves a URI to a caller now."""

    async def ask(self, question: ReadQuestion, *, counts: bool) -> Decision:
        """Ask whether a caller may read a URI; raises `Undecided`."""


@dataclass(slots=True, eq=False)
class _Caller:
    """One caller at one endpoint, as the resource's handler sees it: by its names and scopes."""

    key: tuple[str, Principal]
    permits: dict[str, UriPermit] = field(default_factory=dict)
    """By their URIs."""


@dataclass(slots=True, eq=False)
class UriPermit:
    """Whether a caller may hear of a URI."""

    caller: _Caller
    uri: str
    streams: set[Stream] = field(default_factory=set)
    """The caller's that watch the URI."""
    may_read: bool | None = None
    """The last decision; none before the first."""
    definition: str | None = None
    """The digest of the definition that decided."""
    until: float = -math.inf
    """Monotonic seconds until which the decision holds."""
    has_news: bool = False
    """A change waits for the decision."""
    catalog: int = -1
    """The change of the catalog up to which the definition is known to be the one that decided."""
    generation: int = 0
    """Grows where a decision may have been taken back: one that was asked for before does not count."""
    pool: str | None = None
    """The pool whose worker is being asked, or waited for; none where nobody is."""
    outcome: anyio.Event | None = None
    """Is set when nobody is being asked any more."""
    awaited: int = 0
    """Requests that wait for it."""
    counts: bool = False
    """The question counts against the rate of the caller's requests: a request or a change waits for it."""
    again: float = -math.inf
    """Monotonic seconds before which nobody is asked again, after no answer."""
    failures: int = 0

    @property
    def principal(self) -> Principal:
        """The caller."""
        return self.caller.key[1]

    @property
    def question(self) -> ReadQuestion:
        """The question that is asked for it."""
        return ReadQuestion(*self.caller.key, self.uri)

    @property
    def is_refused(self) -> bool:
        """Whether a resource is there for the caller, and does not let it read; what is not there may come (T12)."""
        return self.may_read is False and self.definition is not None


class UriPermits:
    """Keeps decisions: those on what is watched, and the newest of the others."""

    def __init__(
        self, decides: Decides, settings: EdgeSettings, *, instruments: StreamInstruments, log: FilteringBoundLogger
    ) -> None:
        self._decides = decides
        self._lasts = settings.permission_lasts
        self._within = settings.read_checked_within
        self._pause = 1 / settings.read_checks_rate
        self._kept = settings.read_checks_kept
        self._log = log
        self._callers: dict[tuple[str, Principal], _Caller] = {}
        self._idle: OrderedDict[UriPermit, None] = OrderedDict()
        """Those that no stream watches, the longest idle first."""
        self._queue: ReadQueue[UriPermit] = ReadQueue(self._decide)
        self._changed: set[str] = set()
        """Endpoints whose definitions have changed."""
        self._catalogs: Counter[str] = Counter()
        """How often those of each have."""
        self._anonymous: dict[str, _Caller] = {}
        """By endpoints, for thousands of streams may be of callers without a name."""
        self._has_changed = anyio.Event()
        self._hear: Callable[[UriPermit, bool], None] = lambda _permit, _has_news: None
        instruments.read_checks_waiting.observe(lambda: len(self._queue))

    def on_decision(self, hear: Callable[[UriPermit, bool], None]) -> None:
        """Have somebody hear of each decision that is another than before, and whether a change waited for it."""
        self._hear = hear

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Ask, and renew what is watched, until cancelled."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._queue.run)
            tasks.start_soon(self._renew)
            task_status.started()

    # -- watching -----------------------------------------------------------------------------------------------------

    def watch(self, stream: Stream, uris: Collection[str]) -> list[UriPermit]:
        """Note that a stream watches URIs, as its principal, until `unwatch`; nobody is asked by that."""
        if not uris:
            return []
        caller = self._caller(stream.endpoint, stream.permission.principal)
        permits = [self._permit(caller, uri) for uri in uris]
        for permit in permits:
            permit.streams.add(stream)
            self._idle.pop(permit, None)
        return permits

    def unwatch(self, stream: Stream, permit: UriPermit) -> None:
        """Note that a stream watches no more."""
        permit.streams.discard(stream)
        if not permit.streams:
            self._rest(permit)

    def _caller(self, endpoint: str, principal: Principal) -> _Caller:
        if principal is ANONYMOUS and (caller := self._anonymous.get(endpoint)) is not None:
            return caller
        key = endpoint, principal
        caller = self._callers.get(key) or self._callers.setdefault(key, _Caller(key))
        if principal is ANONYMOUS:
            self._anonymous[endpoint] = caller
        return caller

    def _permit(self, caller: _Caller, uri: str) -> UriPermit:
        permit = caller.permits.get(uri)
        if permit is None:
            permit = caller.permits[uri] = UriPermit(caller, uri)
        return permit

    def _rest(self, permit: UriPermit) -> None:
        """Keep the decision of what nobody watches for a while, where there is one or it is on its way."""
        permit.has_news = False
        if permit.pool is not None and not permit.awaited and self._queue.take_back(permit, permit.pool, permit.caller):
            self._settle(permit)
        if permit.pool is not None:
            return
        if permit.until <= time.monotonic():
            self._forget(permit)
            return
        self._idle[permit] = None
        while len(self._idle) > self._kept:
            self._forget(self._idle.popitem(last=False)[0])

    def _forget(self, permit: UriPermit) -> None:
        self._idle.pop(permit, None)
        permit.caller.permits.pop(permit.uri, None)
        if not permit.caller.permits:
            self._callers.pop(permit.caller.key, None)
            if self._anonymous.get(permit.caller.key[0]) is permit.caller:
                del self._anonymous[permit.caller.key[0]]

    # -- what was decided ---------------------------------------------------------------------------------------------

    def may_tell(self, permit: UriPermit, definition: str) -> bool:
        """Whether a change may be told now; where nobody knows, it waits, and the resource is asked.

        Args:
            permit: of who would be told.
            definition: the digest of the definition that serves the URI to it now.
        """
        if time.monotonic() < permit.until and permit.definition == definition:
            return permit.may_read is True
        permit.has_news = True
        self._ask(permit)
        return False

    def is_known(self, permit: UriPermit) -> bool:
        """Whether the last decision holds, for the definition that there is now."""
        if time.monotonic() >= permit.until:
            return False
        catalog = self._catalogs[permit.caller.key[0]]
        if permit.catalog != catalog:
            target = self._decides.find(permit.question)
            if permit.definition != (None if target is None else target.listed.digest):
                return False
            permit.catalog = catalog
        return True

    def want(self, permits: Iterable[UriPermit]) -> list[UriPermit]:
        """Have resources asked where no decision holds; returns those that can be waited for."""
        unknown = [permit for permit in permits if not self.is_known(permit)]
        for permit in unknown:
            self._ask(permit)
        return [permit for permit in unknown if permit.outcome is not None]

    async def wait(self, permits: Iterable[UriPermit]) -> None:
        """Wait until nobody is asked about them any more, within MCPFLEET_READ_CHECKED_WITHIN."""
        with anyio.move_on_after(self._within):
            for permit in permits:
                if permit.outcome is not None:
                    await permit.outcome.wait()

    async def may_read(self, question: ReadQuestion) -> bool:
        """Whether a caller may read a URI.

        Raises:
            Undecided: nobody could say so in time.
        """
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
                self._rest(permit)

    def take_back(self, concerns: Callable[[Principal], bool], *, spread: bool) -> None:
        """Let no decision hold on callers whose permissions may have ended; they are asked again.

        Args:
            concerns: says which.
            spread: they are all, and end at moments by chance, within half of a permission's time.
        """
        now = time.monotonic()
        for caller in list(self._callers.values()):
            if not spread and not concerns(caller.key[1]):
                continue
            for permit in list(caller.permits.values()):
                permit.generation += 1
                permit.again = -math.inf
                end = now + random.uniform(0, self._lasts / 2) if spread else -math.inf  # noqa: S311  # no secret
                permit.until = min(permit.until, end)
                if permit in self._idle and permit.until <= now:
                    self._forget(permit)

    def catalog_changed(self, endpoint: str) -> None:
        """Hear that other definitions may serve an endpoint's URIs: they are asked again."""
        self._catalogs[endpoint] += 1
        self._changed.add(endpoint)
        self._has_changed.set()

    # -- asking -------------------------------------------------------------------------------------------------------

    def _ask(self, permit: UriPermit, *, renews: bool = False) -> bool:
        """Have a resource asked, unless it did not answer just now; returns whether a further reading waits by that."""
        if time.monotonic() < permit.again:
            return False
        permit.counts = not renews or (permit.counts and permit.pool is not None)
        if permit.pool is not None:
            if not renews:
                self._queue.hasten(permit, permit.pool, permit.caller)
            return False
        target = self._decides.find(permit.question)
        if target is None:  # nothing is there for the caller: nobody need be asked
            self._take(permit, Decision(may_read=False, definition=None), time.monotonic())
            return False
        permit.pool, permit.outcome = target.listed.pool, anyio.Event()
        self._queue.add(permit, permit.pool, permit.caller, renews=renews)
        return True

    async def _decide(self, permit: UriPermit) -> None:
        """Ask for a decision, once more where something was taken back meanwhile."""
        generation, asked = -1, 0.0
        decision: Decision | None = None
        try:
            while generation != permit.generation and (permit.streams or permit.awaited):
                generation, asked = permit.generation, time.monotonic()
                decision = await self._decides.ask(permit.question, counts=permit.counts)
        except Undecided:
            decision = None
        except Exception:
            decision = None
            self._log.exception("read check failed")
        self._settle(permit)
        if decision is not None and generation == permit.generation:
            self._take(permit, decision, asked)
        else:
            permit.failures += 1
            permit.again = time.monotonic() + min(_RETRY * 2 ** (permit.failures - 1), self._lasts)
        if not permit.streams and not permit.awaited:
            self._rest(permit)

    @staticmethod
    def _settle(permit: UriPermit) -> None:
        """Note that nobody is being asked any more."""
        permit.pool = None
        if permit.outcome is not None:
            permit.outcome.set()
            permit.outcome = None

    def _take(self, permit: UriPermit, decision: Decision, asked: float) -> None:
        """Go by a decision; who could not read before and can now may have missed a change."""
        is_other, comes_back = permit.may_read is not decision.may_read, permit.is_refused
        permit.may_read, permit.definition = decision
        permit.catalog = -1
        # A reading may take longer than its decision holds: what it permits is told once nonetheless.
        permit.until = max(asked + self._lasts, time.monotonic() + self._lasts / _LOOKS)
        permit.failures, permit.again = 0, -math.inf
        has_news, permit.has_news = permit.has_news or comes_back, False
        if permit.streams and (is_other or has_news):
            self._hear(permit, has_news)

    async def _renew(self) -> None:
        """Renew decisions on what is watched, until cancelled: so many a second; the rest once there is a change."""
        while True:
            with anyio.move_on_after(self._lasts / _LOOKS):
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
        if permit.caller.key[0] in changed:
            return not self.is_known(permit)
        return permit.until <= time.monotonic()
