"""What became of a handler, as the frame that ends its call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY
from structlog.typing import FilteringBoundLogger

from mcpfleet.app import (
    Answer,
    ClientLacks,
    Handler,
    InvalidArguments,
    NotFound,
    Outcome,
    OutputError,
    ProtocolError,
    QuestionChanged,
    ToolError,
    TryAgain,
)
from mcpfleet.app.outcome import Kept, may_hold_controls, without_controls
from mcpfleet.contracts.call import (
    AUTHORED_ERROR,
    BAD_ARGUMENTS,
    BAD_PARAMS,
    FAILED,
    LACKING,
    NOT_FOUND,
    REFUSED,
    FrameKind,
)
from mcpfleet.contracts.manifest import Kind
from mcpfleet.contracts.task_payloads import write_kept
from mcpfleet.telemetry import names
from mcpfleet.wire.reply import result_body, written
from mcpfleet.worker.calls.table import Held
from mcpfleet.worker.frames import Ended
from mcpfleet.worker.replay import Replay
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.tasks.completion import TRY_AGAIN

_NOUNS: Final[dict[Kind, str]] = {"template": "resource", "lister": "list"}
"""What a client knows a kind as, where that is another word."""


class RunEnd(NamedTuple):
    """A call's end, and what spans and metrics call it."""

    frame: Ended
    error_type: str
    """Empty for a result, and for questions."""


class ResultEncoder:
    """Makes ends. Whatever a handler returned or raised, there is one; its text is the client's to read."""

    def __init__(
        self, settings: WorkerSettings, log: FilteringBoundLogger, clean: Callable[[str], str] | None = without_controls
    ) -> None:
        """Describe the ends.

        Args:
            settings: their limits.
            log: where the errors go whose text no client may read.
            clean: what every text of a tool's result goes through.
        """
        self._settings = settings
        self._log = log
        self._clean = clean

    def returned(self, held: Held, handler: Handler, answer: Answer | Outcome | Kept) -> RunEnd:
        """The end of a handler that returned, if what it returned can be written."""
        kind = handler.definition.kind
        if held.outcome_only:
            return RunEnd(Ended(held.key, FrameKind.RESULT, b""), "")
        try:
            body = self._written(answer)
        except ValueError as error:  # a part that the author built does not serialise
            return self.raised(held, handler, OutputError(f"the result is not JSON: {type(error).__name__}"))
        if len(body) > self._settings.result_limit:
            self._log.error("result too large", bytes=len(body), limit=self._settings.result_limit, **_named(handler))
            return _failure(
                held,
                kind,
                f"The result has {len(body)} bytes, and the limit is {self._settings.result_limit} "
                "(MCPFLEET_RESULT_LIMIT).",
                "result_too_large",
            )
        if isinstance(answer, Outcome) and answer.is_error:
            return RunEnd(Ended(held.key, FrameKind.RESULT, body, FAILED), names.TOOL_ERROR)
        return RunEnd(Ended(held.key, FrameKind.RESULT, body), "")

    def asks(self, held: Held, handler: Handler, rounds: Replay) -> RunEnd:
        """The end of a run that waits for answers: its client is asked; a task's has been already."""
        if held.is_task or held.outcome_only:
            return RunEnd(Ended(held.key, FrameKind.ASK, b""), "")
        try:
            body = written(rounds.frame())
        except ValueError as error:
            return self.raised(held, handler, OutputError(f"a question is not JSON: {type(error).__name__}"))
        if len(body) > self._settings.ask_limit:
            why = OutputError(f"the questions have {len(body)} bytes (MCPFLEET_ASK_LIMIT)")
            return self.raised(held, handler, why)
        return RunEnd(Ended(held.key, FrameKind.ASK, body), "")

    def raised(self, held: Held, handler: Handler, error: BaseException) -> RunEnd:
        """The end of a handler that raised: a mistake's text is for the log, and the client gets a reference (D3)."""
        kind = handler.definition.kind
        if isinstance(error, TryAgain) and held.is_task:
            return _another_attempt(held, error)
        if isinstance(error, ProtocolError):
            return self._authored(held, handler, error)
        # A task's arguments were checked when it was made, by the tool as it was then.
        if isinstance(error, QuestionChanged) or (isinstance(error, InvalidArguments) and held.is_task):
            self._log.error("a tool has changed under its task", error=str(error), **_named(handler))
            return _failure(held, kind, f"The tool has changed since this task was made. {error}", "changed_tool")
        if (said := _said(held, kind, error)) is not None:
            return said
        if isinstance(error, OutputError):
            self._log.error("broken output contract", error=str(error), **_named(handler))
            what = "its own output schema" if kind == "tool" else "its declaration"
            message = f"The {_noun(kind)} broke {what} (reference {held.trace.trace_id})"
            return RunEnd(_error(held, INTERNAL_ERROR, message), "output_contract")
        self._log.error("handler failed", exc_info=error, **_named(handler))
        text = f"The {_noun(kind)} failed (reference {held.trace.trace_id})."
        return _failure(held, kind, text, type(error).__qualname__)

    def overdue(self, held: Held, handler: Handler, seconds: float) -> RunEnd:
        """The end of a handler that took longer than its time (M59)."""
        kind = handler.definition.kind
        return _failure(held, kind, f"The {_noun(kind)} did not finish within {seconds:.3g} s.", "timeout")

    def not_run(self, held: Held, handler: Handler) -> RunEnd:
        """The end of a call whose time was over while it waited for a slot."""
        text = "The call waited for a slot until its time was over: it has not run."
        return _failure(held, handler.definition.kind, text, "timeout")

    def cancelled(self, held: Held) -> RunEnd:
        """The end of a call that nobody waits for; it is not sent."""
        return RunEnd(Ended(held.key, FrameKind.RESULT, b""), names.CANCELLED)

    def not_kept(self, held: Held, handler: Handler) -> RunEnd:
        """The end of a call that ran, and whose repeats cannot be told of it."""
        text = (
            "The call has run, and its result could not be kept under its idempotency key: a repeat will be told that "
            "the outcome is uncertain. Find out, by a tool that reads, before calling it again."
        )
        return _failure(held, handler.definition.kind, text, "not_kept")

    def given_up(self, held: Held, handler: Handler) -> RunEnd:
        """The end of a call that ended with its worker: uncertain."""
        return RunEnd(given_up(held, handler.definition.kind), "given_up")

    def _written(self, answer: Answer | Outcome | Kept) -> bytes:
        if isinstance(answer, Kept):  # as it is: it is cleaned once it is cleared
            return write_kept(answer.shape, _result_body(answer.outcome))
        body = _result_body(answer)
        if isinstance(answer, Outcome) and self._clean is not None:
            # The default one is asked only where it may find something: most results hold nothing of the kind.
            if self._clean is without_controls and not may_hold_controls(body):
                return body
            cleaned = answer.cleaned(self._clean)
            return body if cleaned is answer else _result_body(cleaned)
        return body

    def _authored(self, held: Held, handler: Handler, error: ProtocolError) -> RunEnd:
        try:
            frame = _error(held, error.code, error.message, error.data, AUTHORED_ERROR)
        except ValueError as mistake:
            why = OutputError(f"the error is not JSON: {type(mistake).__name__}")
            return self.raised(held, handler, why)
        if len(frame.body) > self._settings.error_limit:
            why = OutputError(f"the error has {len(frame.body)} bytes (MCPFLEET_ERROR_LIMIT)")
            return self.raised(held, handler, why)
        return RunEnd(frame, str(error.code))


def _said(held: Held, kind: Kind, error: BaseException) -> RunEnd | None:
    """The end of a handler that did not fail: what it raised is meant for its caller."""
    if isinstance(error, InvalidArguments):
        if kind == "tool":
            ending = _failure(held, kind, str(error), names.TOOL_ERROR)
            return ending._replace(frame=replace(ending.frame, header=BAD_ARGUMENTS))
        problems = "; ".join(map(str, error.problems))
        return RunEnd(_error(held, INVALID_PARAMS, problems, line=BAD_PARAMS), str(INVALID_PARAMS))
    if isinstance(error, ClientLacks):
        code, line = MISSING_REQUIRED_CLIENT_CAPABILITY, " ".join((LACKING, *error.names))
        return RunEnd(_error(held, code, "The client cannot answer what is asked", line=line), str(code))
    if isinstance(error, NotFound) and kind in ("resource", "template"):
        return RunEnd(_error(held, INVALID_PARAMS, "Resource not found", line=NOT_FOUND), str(INVALID_PARAMS))
    if isinstance(error, ToolError):
        ending = _failure(held, kind, str(error).encode(errors="replace").decode(), names.TOOL_ERROR)
        return ending._replace(frame=replace(ending.frame, header=REFUSED)) if held.outcome_only else ending
    return None


def _another_attempt(held: Held, error: TryAgain) -> RunEnd:
    frame = _failure(held, "tool", str(error).encode(errors="replace").decode(), names.TOOL_ERROR).frame
    return RunEnd(replace(frame, header=f"{TRY_AGAIN} {error.after:.3f}"), names.TOOL_ERROR)


def given_up(held: Held, kind: Kind) -> Ended:
    """The end of a call whose worker leaves before it: uncertain."""
    text = (
        "The worker that ran this call had to stop before it was finished. The outcome is uncertain: it may have had "
        "its effect, in whole or in part. Find out, by a tool that reads, before calling it again. "
        f"(reference {held.trace.trace_id})"
    )
    return _failure(held, kind, text, "given_up").frame


def _failure(held: Held, kind: Kind, text: str, error_type: str) -> RunEnd:
    """Say what went wrong: to the model, in a tool's result; to the client, in an internal error of all else (D3)."""
    if kind == "tool" and not held.shows:
        return RunEnd(Ended(held.key, FrameKind.RESULT, _result_body(Outcome.failed(text)), FAILED), error_type)
    return RunEnd(_error(held, INTERNAL_ERROR, text), error_type)


def _error(held: Held, code: int, message: str, data: Any = None, line: str | None = None) -> Ended:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return Ended(held.key, FrameKind.ERROR, written(error), line)


def _result_body(answer: Answer | Outcome) -> bytes:
    return result_body({"resultType": "complete", **answer.fields()}, answer.meta)


def _noun(kind: Kind) -> str:
    return _NOUNS.get(kind, kind)


def _named(handler: Handler) -> dict[str, str]:
    """Name a handler in a log line, by its kind: `tool=search`."""
    return {handler.definition.kind: handler.definition.name}
