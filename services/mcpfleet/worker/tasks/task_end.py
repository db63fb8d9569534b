"""The completion of a task: decides from its handler's last frame how it ends, and writes the end (K23).

An end is never dropped. It is worth more than its lease: it is offered again whatever the service answers. The fence of
the write says whether it still counts. The service's decision, or a long time, ends that.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import anyio
from pydantic_core import from_json, to_json
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.call import FrameKind
from mcpfleet.contracts.pool_tasks import PoolTasksClient, Release, Settle
from mcpfleet.contracts.task_payloads import KeptResult, is_kept
from mcpfleet.contracts.tasks import Status
from mcpfleet.wire.reply import failed_result
from mcpfleet.worker import texts
from mcpfleet.worker.reporters import status_message
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.tasks.holdings import Holding, elapsed
from mcpfleet.worker.tasks.service_retry import is_decision, is_too_large, retry_pauses
from mcpfleet.worker.work import TRY_AGAIN, Ended

_END_OFFERED: Final = 3600.0
"""Seconds for which an end is offered to a service that does not answer."""
REFUSED_FOR: Final = 5.0
"""Seconds for which a refused end is offered, before a failure takes its place."""

HolderWrite: TypeAlias = Settle | Release


def write_of(holding: Holding, ended: Ended) -> HolderWrite | None:
    """Decide what is written for a task whose handler has returned; nothing if it is lost, or waits for its client."""
    if holding.is_lost or ended.kind is FrameKind.ASK:
        return None
    if holding.is_cancelled and (not ended.body or _is_failure(ended)):
        return Settle(status=Status.CANCELLED, **_fields(holding))
    # Its run was ended from outside, or was told to end: such a run leaves no result.
    if not ended.body or (holding.is_stopped and not holding.is_cancelled):
        return given_back(holding)
    end = _settled(holding, ended)
    line = ended.header or ""
    if line.startswith(TRY_AGAIN) and not holding.is_cancelled:
        return Release(id=holding.id, fence=holding.fence, failed=end, after=float(line.rpartition(" ")[2]))
    return end


def given_back(holding: Holding) -> Release:
    """A task that another worker may go on with; the attempt does not count."""
    return Release(id=holding.id, fence=holding.fence)


def _is_failure(ended: Ended) -> bool:
    """Whether a cancelled handler says that it stopped. A result that it has in spite of that counts (K10)."""
    if ended.kind is not FrameKind.RESULT:
        return True
    result = KeptResult.read(ended.body).result if is_kept(ended.body) else from_json(ended.body)
    return result.get("isError") is True


def _settled(holding: Holding, ended: Ended) -> Settle:
    """The end of a handler that gave a result, or a JSON-RPC error (M68)."""
    text = ended.body.decode()
    if ended.kind is FrameKind.RESULT:
        return Settle(status=Status.COMPLETED, end=text, **_fields(holding))
    return _failed(holding, text, "application_error")


def _fields(holding: Holding) -> dict[str, Any]:
    """The fields of every end: the task, the fence, and how far the task came."""
    return {"id": holding.id, "fence": holding.fence, "message": holding.message, "progress": holding.progress}


def _failed(holding: Holding, error: str, failure: str) -> Settle:
    """A failure, whose status message is the message of its error."""
    message = from_json(error).get("message")
    words = status_message(message) if isinstance(message, str) else None
    return Settle(id=holding.id, fence=holding.fence, status=Status.FAILED, end=error, message=words, failure=failure)


class TaskEndWriter:
    """Writes completions."""

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

    async def write(self, holding: Holding, completion: HolderWrite) -> None:
        """Write a task's end, or give it back, however long that takes while it can be ours."""
        began, refused_since = elapsed(), None
        most = _END_OFFERED if isinstance(completion, Settle) else self._settings.task_drops
        with holding.traced():
            for number, pause in enumerate(retry_pauses()):
                try:
                    await self._offer(completion)
                except BusError as error:
                    self._tell(holding, error, is_first=number == 0)
                    if elapsed() - began > most:
                        self._log.error("task end not written", task=holding.id, error=str(error))
                        return
                    if is_decision(error):
                        refused_since = elapsed() if refused_since is None else refused_since
                        completion = self._instead(holding, completion, error, seconds=elapsed() - refused_since)
                else:
                    return
                await anyio.sleep(pause)

    async def _offer(self, completion: HolderWrite) -> None:
        if isinstance(completion, Settle):
            if (await self._client.settle(completion)).lost:
                self._log.warning("task end refused", task=completion.id)
        elif (await self._client.release(completion)).lost:
            self._log.debug("task release refused", task=completion.id)

    def _tell(self, holding: Holding, error: BusError, *, is_first: bool) -> None:
        if is_first:
            self._log.warning("task end not written yet", task=holding.id, error=str(error))
        else:
            self._log.debug("task end not written yet", task=holding.id, error=str(error))

    def _instead(self, holding: Holding, completion: HolderWrite, error: BusError, *, seconds: float) -> HolderWrite:
        """Choose what to offer after a refusal: the same for a while, then less. The handler must not run again."""
        if is_too_large(error):
            self._log.error("task result too large", task=holding.id, error=str(error))
            return Settle(status=Status.COMPLETED, end=failed_result(str(error)).decode(), **_fields(holding))
        if seconds < self._refused_for or not isinstance(completion, Settle):
            return completion
        self._log.error("task result refused", task=holding.id, error=str(error))
        internal_error = to_json({"code": -32603, "message": texts.TASK_RESULT_NOT_KEPT}).decode()
        return _failed(holding, internal_error, "internal")
