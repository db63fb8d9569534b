"""What became of a handler, as the frame that ends its call."""

from __future__ import annotations

from typing import Any, NamedTuple

from mcp_types import INTERNAL_ERROR
from structlog.typing import FilteringBoundLogger

from mcpfleet.app import InvalidArguments, Outcome, OutputError, ProtocolError
from mcpfleet.contracts.call import AUTHORED_ERROR, FrameKind
from mcpfleet.telemetry import names
from mcpfleet.wire.reply import result_body, written
from mcpfleet.worker.frames import Ended
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.table import Held


class Ending(NamedTuple):
    """A call's end, and what spans and metrics call it."""

    frame: Ended
    error_type: str
    """Empty for a result."""


class Endings:
    """Makes ends. Whatever a handler returned or raised, there is one; its text is the client's to read."""

    def __init__(self, settings: WorkerSettings, log: FilteringBoundLogger) -> None:
        self._settings = settings
        self._log = log

    def returned(self, held: Held, tool: str, outcome: Outcome) -> Ending:
        """The end of a handler that returned, if what it returned can be written."""
        try:
            body = _result_body(outcome)
        except ValueError as error:  # a part that the author built does not serialise
            return self.raised(held, tool, OutputError(f"the result is not JSON: {type(error).__name__}"))
        if len(body) > self._settings.result_limit:
            self._log.error("result too large", tool=tool, bytes=len(body), limit=self._settings.result_limit)
            return _failure(
                held,
                f"The result has {len(body)} bytes, and the limit is {self._settings.result_limit} "
                "(MCPFLEET_RESULT_LIMIT).",
                "result_too_large",
            )
        return Ending(Ended(held.key, FrameKind.RESULT, body), names.TOOL_ERROR if outcome.is_error else "")

    def raised(self, held: Held, tool: str, error: BaseException) -> Ending:
        """The end of a handler that raised: a mistake's text is for the log, and the client gets a reference (D3)."""
        if isinstance(error, InvalidArguments):
            return _failure(held, str(error), names.TOOL_ERROR)
        if isinstance(error, ProtocolError):
            return self._authored(held, tool, error)
        if isinstance(error, OutputError):
            self._log.error("broken output contract", tool=tool, error=str(error))
            message = f"The tool broke its own output schema (reference {held.trace.trace_id})"
            return Ending(self._error(held, INTERNAL_ERROR, message), "output_contract")
        self._log.error("handler failed", tool=tool, exc_info=error)
        return _failure(held, f"The tool failed (reference {held.trace.trace_id}).", type(error).__qualname__)

    def overdue(self, held: Held, seconds: float) -> Ending:
        """The end of a handler that took longer than its time (M59)."""
        return _failure(held, f"The tool did not finish within {seconds:.3g} s.", "timeout")

    def not_run(self, held: Held) -> Ending:
        """The end of a call whose time was over while it waited for a slot."""
        return _failure(held, "The call waited for a slot until its time was over: it has not run.", "timeout")

    def cancelled(self, held: Held) -> Ending:
        """The end of a call that nobody waits for; it is not sent."""
        return Ending(Ended(held.key, FrameKind.RESULT, b""), names.CANCELLED)

    def given_up(self, held: Held) -> Ending:
        """The end of a call that ended with its worker: uncertain."""
        return Ending(given_up(held), "given_up")

    def _authored(self, held: Held, tool: str, error: ProtocolError) -> Ending:
        try:
            frame = self._error(held, error.code, error.message, error.data, AUTHORED_ERROR)
        except ValueError as mistake:
            why = OutputError(f"the error is not JSON: {type(mistake).__name__}")
            return self.raised(held, tool, why)
        if len(frame.body) > self._settings.error_limit:
            why = OutputError(f"the error has {len(frame.body)} bytes (MCPFLEET_ERROR_LIMIT)")
            return self.raised(held, tool, why)
        return Ending(frame, str(error.code))

    def _error(self, held: Held, code: int, message: str, data: Any = None, line: str | None = None) -> Ended:
        error: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        return Ended(held.key, FrameKind.ERROR, written(error), line)


def given_up(held: Held) -> Ended:
    """The end of a call whose worker leaves before it: uncertain."""
    text = (
        "The worker that ran this call had to stop before it was finished. The outcome is uncertain: it may have had "
        "its effect, in whole or in part. Find out, by a tool that reads, before calling it again. "
        f"(reference {held.trace.trace_id})"
    )
    return _failure(held, text, "given_up").frame


def _failure(held: Held, text: str, error_type: str) -> Ending:
    """A tool result that says to the model what went wrong."""
    return Ending(Ended(held.key, FrameKind.RESULT, _result_body(Outcome.failed(text))), error_type)


def _result_body(outcome: Outcome) -> bytes:
    return result_body({"resultType": "complete", **outcome.fields()}, outcome.meta)
