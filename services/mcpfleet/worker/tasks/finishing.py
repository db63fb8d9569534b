"""Writes what a task's holder leaves: its end, or that it is given back. An end that is there is never dropped (K23).

The end of a handler that has run is worth more than its lease: whatever the service answers, it is offered again, and
the fence of the write says whether it still counts. The service's own word, or a long time, ends that.
"""

from __future__ import annotations

from typing import Final

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.pool_tasks import PoolTasksClient, Settle
from mcpfleet.contracts.pool_tasks import Release as ReleaseTask
from mcpfleet.contracts.tasks import Status
from mcpfleet.telemetry.trace import current
from mcpfleet.wire.reply import failed_result
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.tasks.completion import Release, failed, internal
from mcpfleet.worker.tasks.holdings import Holding, elapsed
from mcpfleet.worker.tasks.retry import is_decision, is_too_large, pauses

_END_OFFERED: Final = 3600.0
"""Seconds for which an end is offered to a service that does not answer."""
REFUSED_FOR: Final = 5.0
"""Seconds for which an end is offered that the service refuses, before a failure stands in its place."""
_UNWRITABLE: Final = "The task has run, and its result could not be kept."


class CompletionWriter:
    """Finishes holdings."""

    def __init__(
        self,
        client: PoolTasksClient,
        settings: WorkerSettings,
        log: FilteringBoundLogger,
        *,
        refused_for: float = REFUSED_FOR,
    ) -> None:
        self._refused_for = refused_for
        self._client = client
        self._settings = settings
        self._log = log

    async def finish(self, holding: Holding, then: Settle | Release) -> None:
        """Write a task's end, or give it back, however long that takes while it can be ours."""
        outer = current.get()
        current.set(holding.trace)
        try:
            await self._offer(holding, then)
        finally:
            current.set(outer)

    async def _offer(self, holding: Holding, then: Settle | Release) -> None:
        began, refused_since = elapsed(), None
        most = _END_OFFERED if isinstance(then, Settle) else self._settings.task_drops
        for number, pause in enumerate(pauses()):
            try:
                await self._write(holding, then)
            except BusError as error:
                self._tell(holding, error, is_first=number == 0)
                if elapsed() - began > most:
                    self._log.error("a task's end was not written", task=holding.id, error=str(error))
                    return
                if is_decision(error):
                    refused_since = elapsed() if refused_since is None else refused_since
                    then = self._instead(holding, then, error, seconds=elapsed() - refused_since)
            else:
                return
            await anyio.sleep(pause)

    def _tell(self, holding: Holding, error: BusError, *, is_first: bool) -> None:
        if is_first:
            self._log.warning("task end not written yet", task=holding.id, error=str(error))
        else:
            self._log.debug("task end not written yet", task=holding.id, error=str(error))

    def _instead(
        self, holding: Holding, then: Settle | Release, error: BusError, *, seconds: float
    ) -> Settle | Release:
        """Choose what to offer after a refusal: the same for a while, then less; the handler must not run again."""
        if is_too_large(error):
            self._log.error("a task's result is too large", task=holding.id, error=str(error))
            return _too_large(holding, str(error))
        if seconds < self._refused_for or not isinstance(then, Settle):
            return then
        self._log.error("task result refused", task=holding.id, error=str(error))
        return failed(holding, internal(_UNWRITABLE), "internal")

    async def _write(self, holding: Holding, then: Settle | Release) -> None:
        if isinstance(then, Settle):
            if (await self._client.settle(then)).lost:
                self._log.warning("a task's end was refused: it is another's, or has ended", task=holding.id)
            return
        released = ReleaseTask(id=holding.id, fence=holding.fence, failed=then.failed, after=then.after)
        if (await self._client.release(released)).lost:
            self._log.debug("task release refused", task=holding.id)


def _too_large(holding: Holding, why: str) -> Settle:
    text = failed_result(why).decode()
    return Settle(
        id=holding.id,
        fence=holding.fence,
        status=Status.COMPLETED,
        end=text,
        message=holding.message,
        progress=holding.progress,
    )
