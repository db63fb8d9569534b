"""Tells the catalog that this worker is alive, and what it serves."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError, Failed, TooLarge
from mcpfleet.bus.fault import Fault
from mcpfleet.contracts.catalog import Announce, Announced, CatalogClient
from mcpfleet.contracts.manifest import Manifest
from mcpfleet.process.errors import ConfigurationError

_FIRST_PAUSE: Final = 0.1
"""Seconds before a second announcement where the first was not heard; then longer, up to the interval."""


class Announcer:
    """Announces a manifest as one process of a pool."""

    def __init__(
        self, client: CatalogClient, pool: str, process: str, manifest: Manifest, *, interval: float,
        on_counted: Callable[[Announced], None], log: FilteringBoundLogger,
    ) -> None:  # fmt: skip
        """Announce nothing yet; `on_counted` hears each answer that counted this worker in."""
        self._client = client
        self._pool = pool
        self._process = process
        self._manifest = manifest
        self._interval = interval
        self._on_counted = on_counted
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
            if await self._announce(is_known=is_known):
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

    async def replace(self, manifest: Manifest) -> None:
        """Announce another manifest from now on, and at once."""
        if manifest.digest == self._manifest.digest:
            return
        self._manifest = manifest
        if not await self._announce(is_known=True):
            self._woken.set()

    async def leave(self) -> None:
        """Say that this worker drains; if that is lost, the catalog finds out by our silence."""
        message = Announce(process=self._process, digest=self._manifest.digest, leaving=True)
        try:
            await self._client.announce(self._pool, message)
        except BusError as error:
            self._log.warning("the catalog does not know that we leave", error=str(error))

    async def _announce(self, *, is_known: bool) -> bool:
        """Announce once; one after the other, so that a former manifest never comes after a newer one."""
        async with self._turn:
            return await self._announce_now(self._manifest, is_known=is_known)

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
