"""The catalog's loop: it notices changes, merges snapshots, and sends hints."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import anyio
from anyio.abc import TaskStatus

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import NotRun
from mcpfleet.catalog.files import FileRepository
from mcpfleet.catalog.observation import Observation
from mcpfleet.catalog.rebuild import Rebuilt
from mcpfleet.catalog.repository import CatalogRepository, SweepResult
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.contracts.catalog import hint_subject
from mcpfleet.process.events import SnapshotChanged
from mcpfleet.process.lifecycle import HeartbeatWindow
from mcpfleet.process.service import Process
from mcpfleet.store.errors import StoreError
from mcpfleet.store.readiness import StoreReadiness
from mcpfleet.telemetry.instruments import CatalogInstruments
from mcpfleet.telemetry.spans import Span, SpanKind
from mcpfleet.telemetry.trace import TraceContext

_MOST_CAUSES: Final = 32
"""Announcements that one sweep's span links to; a whole pool may announce at once."""

_COLLECTIONS: Final = 12
"""Collections of unnamed files within the time that they are kept."""


class CatalogSweeper:
    """Sweeps at intervals, and at once when it is woken after a quiet time. It is the only task that merges changes."""

    def __init__(
        self,
        repository: CatalogRepository,
        files: FileRepository,
        bus: Bus,
        process: Process[CatalogSettings],
        instruments: CatalogInstruments,
    ) -> None:
        self._repository = repository
        self._files = files
        self._collected = -math.inf
        self._bus = bus
        self._settings = process.settings
        self._tracer = process.telemetry.tracer
        self._instruments = instruments
        self._log = process.log
        self._woken = anyio.Event()
        self._causes: list[TraceContext] = []
        """The sampled traces that woke it since the last sweep."""
        self._window = HeartbeatWindow(longest_gap=process.settings.worker_lost / 2)
        self._observers = process.observers
        self._pools: set[str] = set()
        self._readiness = StoreReadiness(process.health, process.log)

    def wake(self, cause: TraceContext | None) -> None:
        """Sweep at once: a worker came, changed or left. The sweep's span continues the cause's trace."""
        if cause is not None and cause.sampled and len(self._causes) < _MOST_CAUSES:
            self._causes.append(cause)
        self._woken.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Sweep until cancelled; it counts as started once the store answered, with tables that are new enough.

        Raises:
            ConfigurationError: the tables are older than this release.
        """
        has_looked = False
        while True:
            swept = await self._look(first=not has_looked)
            if swept is not None and not has_looked:
                has_looked = True
                task_status.started()
            if swept is not None and swept.was_due:
                # A worker that changes all the time must not make every edge fetch all the time.
                await anyio.sleep(self._settings.catalog_pause)
            with anyio.move_on_after(self._settings.catalog_sweep):
                await self._woken.wait()
            self._woken = anyio.Event()

    async def _look(self, *, first: bool) -> SweepResult | None:
        """Sweep once; None where the store did not answer."""
        watched = self._window.look(time.monotonic(), self._bus.proven_since)
        lost = self._settings.worker_lost if watched >= self._settings.worker_lost else None
        causes, self._causes = self._causes, []
        try:
            with self._span(causes) as span:
                if first:
                    await self._repository.check()
                swept = await self._repository.sweep(lost=lost)
                await self._collect()
                self._readiness.answered()
                self._measure(swept.seen)
                self.tell(swept.rebuilt, span.context if span is not None else None)
        except StoreError as error:
            self._causes = [*causes, *self._causes][:_MOST_CAUSES]
            self._window.interrupt()
            self._readiness.failed(error)
            return None
        return swept

    async def _collect(self) -> None:
        """Delete files that nothing names any more, now and then."""
        if time.monotonic() - self._collected >= self._settings.files_kept / _COLLECTIONS:
            await self._files.collect()
            self._collected = time.monotonic()

    def _span(self, causes: list[TraceContext]) -> AbstractContextManager[Span | None]:
        """Start a span, unless the timer began the sweep."""
        return self._tracer.start("sweep", SpanKind.INTERNAL, causes[0], links=causes) if causes else nullcontext()

    def tell(self, rebuilt: Iterable[Rebuilt], cause: TraceContext | None) -> None:
        """Log what was committed, and hint at it. Edges also look by a timer, for hints that are lost."""
        for each in rebuilt:
            for refusal in each.refusals:
                self._log.error(
                    "definition refused",
                    endpoint=each.endpoint,
                    pool=refusal.pool,
                    kind=refusal.kind,
                    name=refusal.name,
                    reason=refusal.reason,
                )
            if not each.is_new:
                continue
            self._log.info("snapshot changed", endpoint=each.endpoint, number=each.number, definitions=each.size)
            self._instruments.snapshot.set(each.number, each.endpoint)
            if self._observers.is_on:
                self._observers.tell(SnapshotChanged, each.endpoint, each.number, each.size)
            try:
                self._bus.hint(hint_subject(each.endpoint), str(each.number).encode(), cause)
            except NotRun as error:
                self._log.debug("hint not sent", endpoint=each.endpoint, error=str(error))

    def _measure(self, seen: Observation) -> None:
        for state in seen.states:
            self._instruments.snapshot.set(state.number, state.endpoint)
        counts: dict[str, int] = {}
        for tally in seen.tallies:
            counts[tally.pool] = counts.get(tally.pool, 0) + tally.workers
        for pool in self._pools - counts.keys():
            self._instruments.workers.forget(pool)
        for pool, count in counts.items():
            self._instruments.workers.set(count, pool)
        self._pools = set(counts)
