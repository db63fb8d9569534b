"""The catalog's one loop: it notices what changed, has snapshots merged, and hints at them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import NotRun
from mcpfleet.catalog.observation import Observation
from mcpfleet.catalog.rebuild import Rebuilt
from mcpfleet.catalog.repository import CatalogRepository, SweepResult
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.contracts.catalog import hint_subject
from mcpfleet.process.lifecycle import Health, HeartbeatWindow
from mcpfleet.store.errors import StoreError
from mcpfleet.store.readiness import StoreReadiness
from mcpfleet.telemetry.instruments import CatalogInstruments
from mcpfleet.telemetry.spans import Span, SpanKind, Tracer
from mcpfleet.telemetry.trace import TraceContext

_MOST_CAUSES: Final = 32
"""Announcements that one sweep is linked to; those of a whole pool may come at once."""


class CatalogSweeper:
    """Looks at intervals, and at once when it is woken after a quiet time; the only task that rebuilds at changes."""

    def __init__(
        self,
        repository: CatalogRepository,
        bus: Bus,
        settings: CatalogSettings,
        *,
        health: Health,
        tracer: Tracer,
        instruments: CatalogInstruments,
        log: FilteringBoundLogger,
    ) -> None:
        self._repository = repository
        self._bus = bus
        self._settings = settings
        self._tracer = tracer
        self._instruments = instruments
        self._log = log
        self._woken = anyio.Event()
        self._causes: list[TraceContext] = []
        """What woke it since it looked last, as far as that is recorded."""
        self._vigil = HeartbeatWindow(longest_gap=settings.worker_lost / 2)
        self._pools: set[str] = set()
        self._readiness = StoreReadiness(health, log)

    def wake(self, cause: TraceContext | None) -> None:
        """Look at once: a worker came, changed or left; what the look changes is shown as the cause's doing."""
        if cause is not None and cause.sampled and len(self._causes) < _MOST_CAUSES:
            self._causes.append(cause)
        self._woken.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Look until cancelled; started once the store answered, with tables that are new enough.

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
                # A worker that changes without end must not make every edge fetch without a break.
                await anyio.sleep(self._settings.catalog_pause)
            with anyio.move_on_after(self._settings.catalog_sweep):
                await self._woken.wait()
            self._woken = anyio.Event()

    async def _look(self, *, first: bool) -> SweepResult | None:
        """Look once; none where the store did not answer."""
        watched = self._vigil.look(time.monotonic(), self._bus.proven_since)
        lost = self._settings.worker_lost if watched >= self._settings.worker_lost else None
        causes, self._causes = self._causes, []
        try:
            with self._span(causes) as span:
                if first:
                    await self._repository.check()
                swept = await self._repository.sweep(lost=lost)
                self._readiness.answered()
                self._measure(swept.seen)
                self.tell(swept.rebuilt, span.context if span is not None else None)
        except StoreError as error:
            self._causes = [*causes, *self._causes][:_MOST_CAUSES]
            self._vigil.interrupt()
            self._readiness.failed(error)
            return None
        return swept

    def _span(self, causes: list[TraceContext]) -> AbstractContextManager[Span | None]:
        """A look by the timer is nobody's doing, and of no trace."""
        return self._tracer.start("sweep", SpanKind.INTERNAL, causes[0], links=causes) if causes else nullcontext()

    def tell(self, rebuilt: Iterable[Rebuilt], cause: TraceContext | None) -> None:
        """Log and hint at what was committed. A hint that is lost is made up for by the edges' own timer."""
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
            self._log.info("new snapshot", endpoint=each.endpoint, number=each.number, definitions=each.size)
            self._instruments.snapshot.set(each.number, each.endpoint)
            try:
                self._bus.hint(hint_subject(each.endpoint), str(each.number).encode(), cause)
            except NotRun as error:
                self._log.debug("hint not sent", endpoint=each.endpoint, error=str(error))

    def _measure(self, seen: Observation) -> None:
        for book in seen.books:
            self._instruments.snapshot.set(book.number, book.endpoint)
        counts: dict[str, int] = {}
        for tally in seen.tallies:
            counts[tally.pool] = counts.get(tally.pool, 0) + tally.workers
        for pool in self._pools - counts.keys():
            self._instruments.workers.forget(pool)
        for pool, count in counts.items():
            self._instruments.workers.set(count, pool)
        self._pools = set(counts)
