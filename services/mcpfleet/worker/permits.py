"""Permits at a worker: it answers edges who may read what, and tells them that permits decide otherwise now (X50, X52).

A question takes no slot: a permit only decides, and a stream or a change waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import anyio
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.app.permit import PermitFailed, Permitter
from mcpfleet.bus import header
from mcpfleet.bus.actor import is_fresh
from mcpfleet.bus.bus import Subscription
from mcpfleet.bus.errors import BusError, Fault
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.permits import (
    MOST_ASKED,
    PERMIT,
    AskedByCaller,
    PermitsChanged,
    PermitsWanted,
    Permitted,
    permits_hint_subject,
)
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.process.task_owner import TaskOwner
from mcpfleet.worker.bus_side import BusSide
from mcpfleet.worker.loop_bridge import LoopCalls

_GROUP: Final = "workers"
_AT_ONCE: Final = 64
"""Questions that run at once; edges hear `busy` beyond them."""
_CALLERS_AT_ONCE: Final = 16
"""Callers of one question about whom the permit is asked at once."""
_RAISED_EVERY: Final = 1.0
"""Seconds between two changes that edges are told, at least (X52)."""
_TOLD_EVERY: Final = 2.0
"""Seconds between two hints of the newest change: an edge that missed one hears it within 5 s (X52)."""


class PermitCalls:
    """Asks an application's permits, on the handlers' loop."""

    def __init__(self, threads: int, log: FilteringBoundLogger) -> None:
        self._permitters: Mapping[str, Permitter] = {}
        self._most_threads = threads
        self._log = log
        self._calls: LoopCalls | None = None

    def learn(self, permitters: Mapping[str, Permitter]) -> None:
        """Ask these from now on, by the digests of their definitions; on any thread."""
        self._permitters = permitters

    async def run(self) -> None:
        """Answer until cancelled; runs on the handlers' loop."""
        owner = TaskOwner()
        self._threads = anyio.CapacityLimiter(self._most_threads)
        self._calls = LoopCalls(asyncio.get_running_loop(), owner)
        await owner.run()

    async def ask(self, definition: str, callers: Sequence[AskedByCaller]) -> list[tuple[bool, ...] | None]:
        """Return for each caller the answers about its URIs; None where the permit gave none. On the bus's loop."""
        if self._calls is None:
            return [None] * len(callers)
        return await self._calls.run(partial(self._ask_all, definition, callers))

    async def _ask_all(self, definition: str, callers: Sequence[AskedByCaller]) -> list[tuple[bool, ...] | None]:
        answers: list[tuple[bool, ...] | None] = [None] * len(callers)
        places = asyncio.Semaphore(_CALLERS_AT_ONCE)

        async def ask(place: int, asked: AskedByCaller) -> None:
            async with places:
                answers[place] = await self._ask(definition, asked)

        async with asyncio.TaskGroup() as tasks:
            for place, asked in enumerate(callers):
                tasks.create_task(ask(place, asked))
        return answers

    async def _ask(self, definition: str, asked: AskedByCaller) -> tuple[bool, ...] | None:
        permitter = self._permitters.get(definition)
        if permitter is None:  # it was removed meanwhile
            return None
        try:
            return tuple(await permitter.permits(asked.principal, asked.uris, self._threads))
        except PermitFailed as error:
            self._log.error(
                "permit failed", resource=permitter.definition.name, error=str(error), exc_info=error.__cause__
            )
            return None


class PermitActor:
    """Hears edges' questions, and sends hints of changes. It lives on the bus's loop."""

    def __init__(self, side: BusSide, calls: PermitCalls) -> None:
        """Hear nothing yet.

        Args:
            side: the worker on its bus.
            calls: asks the application.
        """
        self._side = side
        self._bus = side.bus
        self._calls = calls
        self._log = side.log
        self._tasks = TaskOwner()
        self._running = 0
        self._groups: dict[str, Subscription] = {}
        self._changed: set[str] | None = None
        """The URIs that have changed since the last hint; None if none have, and an empty set for all."""
        self._has_changed = AutoResetEvent()
        self._newest: PermitsChanged | None = None

    async def run(self) -> None:
        """Own the questions, and tell edges of changes, until cancelled."""
        async with anyio.create_task_group() as group:
            await group.start(self._tasks.run)
            while True:
                has_changed = await self._has_changed.wait(_TOLD_EVERY)
                if has_changed:
                    self._raise()
                self._tell()
                if has_changed:
                    await anyio.sleep(_RAISED_EVERY)

    async def offer(self, permitters: Iterable[Permitter]) -> None:
        """Answer for these, and for no others."""
        definitions = {each.definition.digest: each for each in permitters}
        self._calls.learn(definitions)
        for definition in definitions.keys() - self._groups.keys():
            subject = PERMIT.subject_for(pool=self._side.pool, definition=definition)
            self._groups[definition] = await self._bus.subscribe(
                subject, partial(self._on_question, definition), _GROUP, asked_by=PERMIT.replies
            )
        for definition in self._groups.keys() - definitions.keys():
            await self._bus.leave(self._groups.pop(definition))

    def changed(self, uris: frozenset[str]) -> None:
        """Have edges told soon that permits decide otherwise now, of these URIs or of all."""
        everything = not uris or self._changed == set()
        self._changed = set() if everything else (self._changed or set()) | uris
        self._has_changed.set()

    def _raise(self) -> None:
        uris, self._changed = self._changed or set(), None
        before = self._newest.number if self._newest is not None else 0
        self._newest = PermitsChanged(
            worker=self._bus.process,
            number=max(before + 1, int(time.time() * 1e6)),
            uris=tuple(sorted(uris)) if len(uris) <= MOST_ASKED else (),
            since=before,
        )

    def _tell(self) -> None:
        if self._newest is None:
            return
        try:
            self._bus.publish(permits_hint_subject(self._side.pool), self._newest.model_dump_json().encode())
        except BusError as error:
            self._log.debug("hint not sent", error=str(error))

    def _on_question(self, definition: str, message: Incoming) -> None:
        sent = header.read(message.header)
        if sent is None or not is_fresh(sent, self._side.settings):
            self._bus.respond(message, b"", header.expired())
        elif self._running >= _AT_ONCE or not self._tasks.is_running:
            self._bus.respond(message, b"", header.BUSY)
        else:
            try:
                wanted = PermitsWanted.model_validate_json(message.body)
            except ValidationError:
                self._log.warning("malformed question", subject=message.subject)
                self._bus.respond(message, b"", header.fault(Fault.CONTRACT))
                return
            self._running += 1
            self._tasks.start(self._answer, definition, wanted, message)

    async def _answer(self, definition: str, wanted: PermitsWanted, message: Incoming) -> None:
        try:
            answers = await self._calls.ask(definition, wanted.callers)
        except (asyncio.CancelledError, ConnectionAbortedError):
            self._bus.respond(message, b"", header.BUSY)
            raise
        finally:
            self._running -= 1
        self._bus.respond(message, Permitted(callers=tuple(answers)).model_dump_json().encode())
