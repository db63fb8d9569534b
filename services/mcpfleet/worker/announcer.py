"""Announces to the catalog that this worker is alive, and what it serves."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import anyio
from anyio.abc import TaskStatus

from mcpfleet.app.file_source import FilesChanged
from mcpfleet.bus.errors import BusError, Failed, Fault, NoResponders, TooLarge
from mcpfleet.contracts.catalog import Announce, Announced, CatalogClient
from mcpfleet.contracts.files import FilesClient
from mcpfleet.contracts.manifest import Manifest
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.lifecycle import STARTING_FOR
from mcpfleet.process.retry import pauses
from mcpfleet.telemetry.spans import Span, SpanKind, Tracer
from mcpfleet.telemetry.trace import TraceContext, TraceSampling
from mcpfleet.worker.bus_side import BusSide

_FIRST_PAUSE: Final = 0.2
"""Seconds between the first announcement and the second, if nobody heard the first; later pauses are longer."""


class Announcer:
    """Announces a manifest as one process of a pool."""

    def __init__(
        self,
        side: BusSide,
        manifest: Manifest,
        *,
        content: Callable[[str], Awaitable[bytes]],
        on_counted: Callable[[Announced], None],
        tracer: Tracer,
        sampling: TraceSampling,
    ) -> None:
        """Announce nothing yet.

        Args:
            side: the worker on its bus.
            manifest: what is announced at first.
            content: returns the bytes of a file of the manifest by its digest, or raises `FilesChanged`.
            on_counted: hears each answer that counted this worker in.
            tracer: starts the spans of announcements.
            sampling: which of them are recorded.
        """
        self._client = CatalogClient(side.bus)
        self._files = FilesClient(side.bus)
        self._content = content
        self._pool = side.pool
        self._process = side.process
        self._interval = side.settings.announce_interval
        self._log = side.log
        self._manifest = manifest
        self._counted: Manifest | None = None
        """The manifest with which this worker counts."""
        self._on_counted = on_counted
        self._tracer = tracer
        self._sampling = sampling
        self._early_until = time.monotonic() + STARTING_FOR
        self._woken = AutoResetEvent()
        self._turn = anyio.Lock()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Announce at every interval until cancelled; started when the catalog has counted us in.

        Raises:
            ConfigurationError: the catalog will never take this manifest.
        """
        for pause in pauses(_FIRST_PAUSE, self._interval):
            if await self._announce(is_known=False, because=self._span()):
                break
            await self._rest(pause)
        self._log.info("announced", pool=self._pool, definitions=len(self._manifest.named))
        task_status.started()
        while True:
            await self._rest(self._interval)
            await self._announce(is_known=True, because=nullcontext())

    async def _rest(self, pause: float) -> None:
        await self._woken.wait(pause * random.uniform(0.8, 1.2))  # noqa: S311

    def begin_with(self, manifest: Manifest) -> None:
        """Announce this manifest at first; before `run`."""
        self._manifest = manifest

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
            self._log.warning("leave not announced", error=str(error))

    async def _announce(self, *, is_known: bool, because: AbstractContextManager[Span | None]) -> bool:
        """Announce the newest manifest once, and bring its files where the catalog lacks some."""
        with because as span:
            is_counted = await self._count_in(self._manifest, is_known=is_known)
            if span is not None and not is_counted:
                span.fail("not_counted")
            return is_counted

    async def _count_in(self, manifest: Manifest, *, is_known: bool) -> bool:
        while True:
            # One after the other, so that a former manifest never comes after a newer one.
            async with self._turn:
                if manifest is not self._manifest:
                    return False
                answer = await self._announce_now(manifest, is_known=is_known)
                if answer is None or answer.wanted:
                    return False
                if not answer.files:
                    self._counted = manifest
                    self._on_counted(answer)
                    return True
            if not await self._bring(manifest, answer.files):
                await self._stay()
                return False

    async def _bring(self, manifest: Manifest, digests: Iterable[str]) -> bool:
        """Bring files of a manifest to the catalog; meanwhile the worker counts with its former one."""
        last = time.monotonic()
        for digest in digests:
            ref = manifest.files.get(digest)
            if ref is None:
                return False
            try:
                await self._files.put(self._pool, ref, await self._content(digest))
            except (BusError, FilesChanged) as error:
                self._log.warning("file not brought to the catalog", path=ref.path, error=str(error))
                return False
            if time.monotonic() - last > self._interval:
                await self._stay()
                last = time.monotonic()
        return True

    async def _stay(self) -> None:
        """Announce the former manifest once more, while the newest one cannot count."""
        async with self._turn:
            if self._counted not in (None, self._manifest):
                await self._announce_now(self._counted, is_known=True)

    def _span(self, cause: TraceContext | None = None) -> AbstractContextManager[Span | None]:
        """The span of an announcement that may change lists; it begins a trace if no work of ours caused it."""
        parent = cause or self._sampling.parent(None, trusted=False)
        if cause is None and parent is not None:
            return nullcontext()  # it is not to be recorded, and of no trace that anybody could know
        return self._tracer.start("announce", SpanKind.INTERNAL, parent)

    async def _announce_now(self, manifest: Manifest, *, is_known: bool) -> Announced | None:
        """Announce a manifest, with its text where it is wanted; None where the catalog did not take it."""
        message = Announce(process=self._process, digest=manifest.digest)
        try:
            answer = await self._client.announce(self._pool, message)
            if answer.wanted:
                whole = message.model_copy(update={"manifest": manifest.text})
                answer = await self._client.announce(self._pool, whole)
        except TooLarge as error:
            raise ConfigurationError(f"the manifest cannot be announced: {error}") from error
        except Failed as error:
            # Once the manifest was taken, a refusal comes from another version of the catalog, in a rollout.
            if error.kind == Fault.CONTRACT and not is_known:
                raise ConfigurationError(f"the catalog refuses the manifest of this application: {error}") from error
            self._log.warning("worker not counted", kind=error.kind, error=str(error))
            return None
        except BusError as error:
            is_early = isinstance(error, NoResponders) and time.monotonic() < self._early_until and not is_known
            tell = self._log.info if is_early else self._log.warning
            tell("announcement not answered", error=str(error))
            return None
        return answer
