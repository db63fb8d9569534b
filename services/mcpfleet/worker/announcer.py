"""Tells the catalog that this worker is alive, and what it serves."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError, Failed, Fault, TooLarge
from mcpfleet.contracts.catalog import Announce, Announced, CatalogClient
from mcpfleet.contracts.manifest import Manifest
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.telemetry.spans import Span, SpanKind, Tracer
from mcpfleet.telemetry.trace import TraceContext, TraceSampling

_FIRST_PAUSE: Final = 0.1
"""Seconds before a second announcement where the first was not heard; then longer, up to the interval."""


class Announcer:
    """Announces a manifest as one process of a pool."""

    def __init__(
        self, client: CatalogClient, pool: str, process: str, manifest: Manifest, *, interval: float,
        on_counted: Callable[[Announced], None], tracer: Tracer, sampling: TraceSampling, log: FilteringBoundLogger,
    ) -> None:  # fmt: skip
        """Announce nothing yet; `on_counted` hears each answer that counted this worker in."""
        self._client = client
        self._pool = pool
        self._process = process
        self._manifest = manifest
        self._interval = interval
        self._on_counted = on_counted
        self._tracer = tracer
        self._sampling = sampling
        self._log = log
        self._woken = anyio.Event()
        self._turn = anyio.Lock()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Announce at every interval until cancelled; started when the catalog has counted us in.

        Raises:
            ConfigurationError: the catalog will never take this manifest.
        """
        is_known = False
        pause = min(_FIRST_PAUSE, self._interval)
        while True:
            if await self._announce(is_known=is_known, because=nullcontext() if is_known else self._span()):
                if not is_known:
                    is_known = True
                    self._log.info("announced", pool=self._pool, definitions=len(self._manifest.definitions))
                    task_status.started()
                pause = self._interval
            else:
                pause = min(pause * 2, self._interval)
            with anyio.move_on_after(pause * random.uniform(0.8, 1.2)):  # noqa: S311
                await self._woken.wait()
                self._woken = anyio.Event()

    async def replace(self, manifest: Manifest, cause: TraceContext | None) -> None:
        """Announce another manifest from now on, and at once, as a part of the work that changed it."""
        if manifest.digest == self._manifest.digest:
            return
        self._manifest = manifest
        if not await self._announce(is_known=True, because=self._span(cause)):
            self._woken.set()

    async def leave(self) -> None:
        """Say that this worker drains; if that is lost, the catalog finds out by our silence."""
        message = Announce(process=self._process, digest=self._manifest.digest, leaving=True)
        try:
            with self._span():
                await self._client.announce(self._pool, message)
        except BusError as error:
            self._log.warning("the catalog does not know that we leave", error=str(error))

    async def _announce(self, *, is_known: bool, because: AbstractContextManager[Span | None]) -> bool:
        """Announce once; one after the other, so that a former manifest never comes after a newer one."""
        async with self._turn:
            with because as span:
                is_counted = await self._announce_now(self._manifest, is_known=is_known)
                if span is not None and not is_counted:
                    span.fail("not_counted")
                return is_counted

    def _span(self, cause: TraceContext | None = None) -> AbstractContextManager[Span | None]:
        """The span of what may change lists, which begins a trace where no work of ours caused it."""
        parent = cause or self._sampling.parent(None, trusted=False)
        if cause is None and parent is not None:
            return nullcontext()  # it is not to be recorded, and of no trace that anybody could know
        return self._tracer.start("announce", SpanKind.INTERNAL, parent)

    async def _announce_now(self, manifest: Manifest, *, is_known: bool) -> bool:
        message = Announce(process=self._process, digest=manifest.digest)
        try:
            answer = await self._client.announce(self._pool, message)
            if answer.wanted:
                whole = message.model_copy(update={"manifest": manifest.text})
                answer = await self._client.announce(self._pool, whole)
        except TooLarge as error:
            raise ConfigurationError(f"the manifest cannot be announced: {error}") from error
        except Failed as error:
            # Once it was taken, a refusal is another catalog's, of a version that is on its way in or out.
            if error.kind == Fault.CONTRACT and not is_known:
                raise ConfigurationError(f"the catalog refuses the manifest of this application: {error}") from error
            self._log.warning("the catalog does not count this worker", kind=error.kind, error=str(error))
            return False
        except BusError as error:
            self._log.warning("the catalog does not answer", error=str(error))
            return False
        if answer.wanted:
            return False
        self._on_counted(answer)
        return True
