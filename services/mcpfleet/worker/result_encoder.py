"""Encodes what a handler returned or raised as the frame that ends its run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

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
    ScopeNeeded,
    ToolError,
    TryAgain,
)
from mcpfleet.app.errors import NotAccepted
from mcpfleet.app.outcome import Kept, may_hold_controls, without_controls
from mcpfleet.app.permit import PermitFailed
from mcpfleet.contracts.apps import is_ui
from mcpfleet.contracts.call import (
    AUTHORED_ERROR,
    BAD_ARGUMENTS,
    BAD_PARAMS,
    FAILED,
    LACKING,
    LOCALIZED,
    NOT_BEGUN,
    NOT_FOUND,
    NOT_RUN,
    REFUSED,
    SCOPES_NEEDED,
    UNCERTAIN,
    UNDECIDED,
    UPSTREAM,
    FrameKind,
)
from mcpfleet.contracts.manifest import Kind
from mcpfleet.contracts.task_payloads import write_kept
from mcpfleet.telemetry import names
from mcpfleet.wire.errors import upstream_error
from mcpfleet.wire.reply import result_body, written
from mcpfleet.wire.texts import needs_scopes
from mcpfleet.worker import texts
from mcpfleet.worker.replay import Replay
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.upstream import HeldElsewhere, NotSent, UpstreamError, UpstreamLost
from mcpfleet.worker.work import TRY_AGAIN, Ended, HandedTo, Purpose, TaskWork, Work

_SourceError: TypeAlias = UpstreamError | NotSent | UpstreamLost | HeldElsewhere


class RunEnd(NamedTuple):
    """The end of a run, and the name of its failure in spans and metrics."""

    frame: Ended
    error_type: str
    """Empty for a result and for questions."""


def _document_size(answer: Answer | Outcome | Kept) -> int:
    """Return the bytes of a read's texts."""
    contents = answer.members.get("contents", ()) if isinstance(answer, Answer) else ()
    return sum(len(each.get("text", "").encode(errors="replace")) for each in contents)


class ResultEncoder:
    """Makes one end of whatever a handler returned or raised. Clients read its text."""

    def __init__(
        self, settings: WorkerSettings, log: FilteringBoundLogger, clean: Callable[[str], str] | None = without_controls
    ) -> None:
        """Make no end yet.

        Args:
            settings: the limits.
            log: gets the errors whose text no client may read.
            clean: cleans every text of a tool's result.
        """
        self._settings = settings
        self._log = log
        self._clean = clean

    def returned(self, work: Work, handler: Handler, answer: Answer | Outcome | Kept) -> RunEnd:
        """The end of a handler that returned, if its result can be written."""
        if work.purpose is Purpose.OUTCOME:
            return RunEnd(Ended(work.key, FrameKind.RESULT, b""), "")
        try:
            body = self._written(answer)
        except ValueError as error:  # a part that the author built does not serialise
            return self.raised(work, handler, OutputError(f"the result is not JSON: {type(error).__name__}"))
        limit = self._settings.result_limit
        if is_ui(handler.definition) and (size := _document_size(answer)) > self._settings.ui_limit:
            why = f"returned a document of {size} bytes, over the limit of {self._settings.ui_limit}"
            return self.raised(work, handler, OutputError(f"{why} (MCPFLEET_UI_LIMIT)"))
        if len(body) > limit:
            self._log.error("result too large", bytes=len(body), limit=limit, **_named(handler))
            text = texts.result_too_large(len(body), limit)
            return _failure(work, handler.definition.kind, text, "result_too_large")
        if answer.is_error:
            return RunEnd(Ended(work.key, FrameKind.RESULT, body, FAILED), names.TOOL_ERROR)
        return RunEnd(Ended(work.key, FrameKind.RESULT, body), "")

    def asks(self, work: Work, handler: Handler, replay: Replay) -> RunEnd:
        """The end of a run that waits for answers: the frame asks the client of a call; a task's was asked already."""
        if isinstance(work, TaskWork) or work.purpose is Purpose.OUTCOME:
            return RunEnd(Ended(work.key, FrameKind.ASK, b""), "")
        try:
            body = written(replay.frame())
        except ValueError as error:
            return self.raised(work, handler, OutputError(f"a question is not JSON: {type(error).__name__}"))
        if len(body) > self._settings.ask_limit:
            why = OutputError(f"the questions have {len(body)} bytes (MCPFLEET_ASK_LIMIT)")
            return self.raised(work, handler, why)
        return RunEnd(Ended(work.key, FrameKind.ASK, body), "")

    def raised(self, work: Work, handler: Handler, error: BaseException) -> RunEnd:  # noqa: PLR0911  # one a kind
        """The end of a handler that raised. The text of a mistake goes to the log; the client gets a reference (D3)."""
        kind, reference = handler.definition.kind, work.trace.trace_id
        is_task = isinstance(work, TaskWork)
        if is_task and isinstance(error, TryAgain):
            return _another_attempt(work, error)
        match error:
            case ScopeNeeded():
                return _lacks_scopes(work, kind, error)
            case ProtocolError():
                return self._authored(work, handler, error, AUTHORED_ERROR)
            case UpstreamError() | NotSent() | UpstreamLost() | HeldElsewhere():
                return self._of_source(work, handler, error)
        # A task's arguments were checked when it was made, by the schema as it was then, and by no validator (K32).
        if isinstance(error, QuestionChanged) or (
            is_task and isinstance(error, InvalidArguments) and not isinstance(error, NotAccepted)
        ):
            self._log.error("tool changed under its task", error=str(error), **_named(handler))
            return _failure(work, kind, texts.tool_changed(error), "changed_tool")
        if isinstance(error, PermitFailed):
            self._log.error("permit failed", error=str(error), exc_info=error.__cause__, **_named(handler))
        if (meant := _meant_for_caller(work, kind, error)) is not None:
            return meant
        if isinstance(error, OutputError):
            self._log.error("broken output contract", error=str(error), **_named(handler))
            message = texts.broke_output_contract(kind, reference)
            return RunEnd(_error(work, INTERNAL_ERROR, message), "output_contract")
        self._log.error("handler failed", exc_info=error, **_named(handler))
        return _failure(work, kind, texts.failed(kind, reference), type(error).__qualname__)

    def _of_source(self, work: Work, handler: Handler, error: _SourceError) -> RunEnd:
        """The end of a call that its source refused, has never heard of, or has not answered."""
        match error:
            case UpstreamError() if isinstance(work, TaskWork):  # nobody translates the end of a task later
                seen = upstream_error(error.code, error.message, error.data)
                return self._authored(work, handler, UpstreamError(seen.code or 0, seen.message, seen.data), UPSTREAM)
            case UpstreamError():
                return self._authored(work, handler, error, UPSTREAM)
            case NotSent() | HeldElsewhere() if isinstance(work, TaskWork):
                return _another_attempt(work, TryAgain(texts.SOURCE_AWAY))
            case NotSent():
                return _not_sent(work)
            case HeldElsewhere():
                doubt = _source_lost(work, handler.definition.kind).frame
                handed = HandedTo(error.worker, (doubt.kind, doubt.body, doubt.header))
                end = _not_sent(work)
                return RunEnd(replace(end.frame, handed_to=handed), "")
        self._log.warning("source lost in a call", **_named(handler))
        return _source_lost(work, handler.definition.kind)

    def overdue(self, work: Work, handler: Handler, seconds: float) -> RunEnd:
        """The end of a handler that took longer than its time (M59)."""
        kind = handler.definition.kind
        return _failure(work, kind, texts.timed_out(kind, seconds), "timeout")

    def not_run(self, work: Work, handler: Handler) -> RunEnd:
        """The end of a call whose time was over while it waited for a slot."""
        return self.not_begun(_failure(work, handler.definition.kind, texts.NOT_RUN, "timeout"))

    def not_begun(self, end: RunEnd) -> RunEnd:
        """Say of a tool's failure that its handler has not begun, where its line does not say so yet."""
        if end.frame.header != FAILED:
            return end
        return end._replace(frame=replace(end.frame, header=NOT_BEGUN))

    def cancelled(self, work: Work) -> RunEnd:
        """The end of a run that nobody waits for; it is not sent."""
        return RunEnd(Ended(work.key, FrameKind.RESULT, b""), names.CANCELLED)

    def not_kept(self, work: Work, handler: Handler) -> RunEnd:
        """The end of a call that ran, whose repeats will not hear its result."""
        return _uncertain(_failure(work, handler.definition.kind, texts.RESULT_NOT_KEPT, "not_kept"))

    def given_up(self, work: Work, handler: Handler) -> RunEnd:
        """The end of a call that ended with its worker: uncertain."""
        return RunEnd(given_up(work, handler.definition.kind), "given_up")

    def _written(self, answer: Answer | Outcome | Kept) -> bytes:
        if isinstance(answer, Kept):  # as it is: it is cleaned when it is shown
            return write_kept(answer.shape, _result_body(answer.outcome))
        body = _result_body(answer)
        if isinstance(answer, Outcome) and self._clean is not None:
            # The default cleaner runs only if it may find something: most results hold no control characters.
            if self._clean is without_controls and not may_hold_controls(body):
                return body
            cleaned = answer.cleaned(self._clean)
            return body if cleaned is answer else _result_body(cleaned)
        return body

    def _authored(self, work: Work, handler: Handler, error: ProtocolError | UpstreamError, line: str) -> RunEnd:
        try:
            frame = _error(work, error.code, error.message, error.data, line)
        except ValueError as mistake:
            why = OutputError(f"the error is not JSON: {type(mistake).__name__}")
            return self.raised(work, handler, why)
        if len(frame.body) > self._settings.error_limit:
            why = OutputError(f"the error has {len(frame.body)} bytes (MCPFLEET_ERROR_LIMIT)")
            return self.raised(work, handler, why)
        return RunEnd(frame, str(error.code))


def localized(end: RunEnd, error: BaseException) -> RunEnd:
    """Say of an author's error that its text is in the call's language."""
    frame = end.frame
    is_authored = isinstance(error, ToolError | ProtocolError) and frame.header in (None, AUTHORED_ERROR)
    if frame.kind is not FrameKind.ERROR or not is_authored:
        return end
    return end._replace(frame=replace(frame, header=f"{frame.header or '1'} {LOCALIZED}"))


def given_up(work: Work, kind: Kind) -> Ended:
    """The end of a call whose worker leaves before it: uncertain."""
    return _uncertain(_failure(work, kind, texts.given_up(work.trace.trace_id), "given_up")).frame


def _uncertain(end: RunEnd) -> RunEnd:
    """Mark a tool's failure: no repeat of the call will hear how it ended."""
    return end._replace(frame=replace(end.frame, header=UNCERTAIN)) if end.frame.header == FAILED else end


def _meant_for_caller(work: Work, kind: Kind, error: BaseException) -> RunEnd | None:
    """The end of a handler that did not fail: the error that it raised is meant for its caller."""
    if isinstance(error, InvalidArguments):
        if kind == "tool":
            end = _failure(work, kind, str(error), names.TOOL_ERROR)
            return end._replace(frame=replace(end.frame, header=BAD_ARGUMENTS))
        problems = "; ".join(map(str, error.problems))
        return RunEnd(_error(work, INVALID_PARAMS, problems, line=BAD_PARAMS), str(INVALID_PARAMS))
    if isinstance(error, ClientLacks):
        code, line = MISSING_REQUIRED_CLIENT_CAPABILITY, " ".join((LACKING, *error.names))
        return RunEnd(_error(work, code, texts.CANNOT_ANSWER, line=line), str(code))
    if isinstance(error, NotFound | PermitFailed) and kind in ("resource", "template"):
        return _not_read(work, error)
    if isinstance(error, ToolError):
        end = _failure(work, kind, _encodable(error), names.TOOL_ERROR)
        return end._replace(frame=replace(end.frame, header=REFUSED)) if work.purpose is Purpose.OUTCOME else end
    return None


def _lacks_scopes(work: Work, kind: Kind, error: ScopeNeeded) -> RunEnd:
    message = needs_scopes(error.scopes)
    if isinstance(work, TaskWork):  # its client has the task's handle already
        return _failure(work, kind, message, names.INSUFFICIENT_SCOPE)
    line = " ".join((SCOPES_NEEDED, *error.scopes))
    return RunEnd(_error(work, INTERNAL_ERROR, message, line=line), names.INSUFFICIENT_SCOPE)


def _not_read(work: Work, error: NotFound | PermitFailed) -> RunEnd:
    if isinstance(error, NotFound):
        return RunEnd(_error(work, INVALID_PARAMS, texts.NO_RESOURCE, line=NOT_FOUND), str(INVALID_PARAMS))
    return RunEnd(_error(work, INTERNAL_ERROR, texts.NO_PERMIT, line=UNDECIDED), "permit")


def _not_sent(work: Work) -> RunEnd:
    return RunEnd(_error(work, INTERNAL_ERROR, texts.SOURCE_AWAY, line=NOT_RUN), "not_sent")


def _source_lost(work: Work, kind: Kind) -> RunEnd:
    return _uncertain(_failure(work, kind, texts.source_lost(kind, work.trace.trace_id), "upstream_lost"))


def _another_attempt(work: Work, error: TryAgain) -> RunEnd:
    frame = _failure(work, "tool", _encodable(error), names.TOOL_ERROR).frame
    return RunEnd(replace(frame, header=f"{TRY_AGAIN} {error.after:.3f}"), names.TOOL_ERROR)


def _encodable(error: ToolError) -> str:
    """The text of an error, without what UTF-8 cannot carry."""
    return str(error).encode(errors="replace").decode()


def _failure(work: Work, kind: Kind, text: str, error_type: str) -> RunEnd:
    """Say why the run failed: to the model in a tool's result, to the client in an internal error otherwise (D3)."""
    if kind == "tool" and work.purpose is not Purpose.SANITIZE:
        return RunEnd(Ended(work.key, FrameKind.RESULT, _result_body(Outcome.failed(text)), FAILED), error_type)
    return RunEnd(_error(work, INTERNAL_ERROR, text), error_type)


def _error(work: Work, code: int, message: str, data: Any = None, line: str | None = None) -> Ended:
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return Ended(work.key, FrameKind.ERROR, written(error), line)


def _result_body(answer: Answer | Outcome) -> bytes:
    return result_body({"resultType": "complete", **answer.fields()}, answer.meta)


def _named(handler: Handler) -> dict[str, str]:
    """Name a handler in a log line, by its kind: `tool=search`."""
    return {handler.definition.kind: handler.definition.name}
