"""What becomes of a task whose handler has returned: decided from its last frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from mcpfleet.contracts.call import FrameKind
from mcpfleet.contracts.pool_tasks import Settle
from mcpfleet.contracts.task_payloads import KeptResult, is_kept
from mcpfleet.contracts.tasks import MESSAGE_LENGTH, Status
from mcpfleet.worker.frames import Ended
from mcpfleet.worker.tasks.holdings import Holding

TRY_AGAIN = "1 try-again"
"""A result's line, followed by seconds: the attempt failed, and this is the task's end if it was the last."""


@dataclass(frozen=True, slots=True)
class Release:
    """It is given back."""

    failed: Settle | None = None
    after: float = 0.0


Next = Settle | Release | None


def following(holding: Holding, ended: Ended) -> Next:
    """Decide what is written; nothing of what is lost, or waits for its client."""
    if holding.is_lost or ended.kind is FrameKind.ASK:
        return None
    if holding.is_cancelled and (not ended.body or _is_failure(ended)):
        return Settle(status=Status.CANCELLED, **_of(holding))
    # Its run was ended from outside, or was told to end: what it says of that is no result.
    if not ended.body or (holding.is_stopped and not holding.is_cancelled):
        return Release()
    end = settled(holding, ended)
    line = ended.header or ""
    if line.startswith(TRY_AGAIN) and not holding.is_cancelled:
        return Release(failed=end, after=float(line.rpartition(" ")[2]))
    return end


def _is_failure(ended: Ended) -> bool:
    """Whether a handler that was cancelled says that it stopped; a result that it has in spite of that counts (K10)."""
    if ended.kind is not FrameKind.RESULT:
        return True
    result = KeptResult.read(ended.body).result if is_kept(ended.body) else from_json(ended.body)
    return result.get("isError") is True


def settled(holding: Holding, ended: Ended) -> Settle:
    """The end of a handler that gave a result, or a JSON-RPC error (M68)."""
    text = ended.body.decode()
    if ended.kind is FrameKind.RESULT:
        return Settle(status=Status.COMPLETED, end=text, **_of(holding))
    return failed(holding, text, "application_error")


def _of(holding: Holding) -> dict[str, Any]:
    """The fields of every end: the holding's task and fence, and how far it had come."""
    return {
        "id": holding.id,
        "fence": holding.fence,
        "message": holding.message,
        "progress": holding.progress,
    }


def failed(holding: Holding, error: str, failure: str) -> Settle:
    """A failure, whose status message says what its error says."""
    message = from_json(error).get("message")
    words = status_message(message) if isinstance(message, str) else None
    return Settle(id=holding.id, fence=holding.fence, status=Status.FAILED, end=error, message=words, failure=failure)


def internal(why: str) -> str:
    """An error of ours, as text."""
    return to_json({"code": -32603, "message": why}).decode()


def status_message(text: str) -> str:
    """Cut a text to what a status message may be."""
    return text.replace("\x00", "")[:MESSAGE_LENGTH]
