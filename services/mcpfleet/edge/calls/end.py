"""What a client is told of a call that has ended: the one place where ends become results and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from pydantic_core import from_json
from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.call import AUTHORED_ERROR, BAD_ARGUMENTS, BAD_PARAMS, FAILED, LACKING, NOT_FOUND
from mcpfleet.edge.calls.in_flight import Call, End
from mcpfleet.edge.protocol.continuation import FIRST, Round, Rounds, TooManyRounds
from mcpfleet.edge.protocol.exchange import Inquiry
from mcpfleet.telemetry import names
from mcpfleet.wire import reply
from mcpfleet.wire.envelope import Envelope
from mcpfleet.wire.errors import Rejection, SessionFault, bad_params, internal, missing_capabilities, unknown_resource
from mcpfleet.wire.protocol import OLDEST

_UNCERTAIN: Final = {
    End.UNACCEPTED: "No worker confirmed that it received this call, and one may still have run it.",
    End.LOST: "The worker that ran this call is no longer heard from.",
    End.RESULT_LOST: "This call has ended, and its result was lost on the way.",
    End.GIVEN_UP: "The server that waited for this call had to stop.",
    End.OVERDUE: "This call was not finished in time. It was told to stop.",
}
NO_SESSION: Final = (
    "This asks its caller something, which clients of this protocol revision can only be asked within a session, and "
    "there is none. A client of 2026-07-28 can be asked."
)
"""M81."""
_TOO_MANY: Final = "The tool asked its caller more often than a client answers."
CANNOT_ANSWER: Final = "This asks its caller something that the client did not say it can answer: "
RESOURCE_NOT_FOUND: Final = -32002
"""Of the revisions of 2025 alone (M24)."""
_OPERATION: Final = frozenset({400, 404, 500})
_FAILURES: Final = frozenset({FAILED, BAD_ARGUMENTS})
"""The lines of results by which a tool says what went wrong."""
_MOST_LACKING: Final = 8
"""Capabilities that a worker may say are missing."""

Finish = Callable[[bytes], bytes]
"""Adds to a worker's result what is the edge's to say; raises `NotSpliceable` where it is malformed."""


def as_it_is(body: bytes) -> bytes:
    """Leave a result as its worker wrote it."""
    return body


Handle = Callable[[bytes], Awaitable[bytes]]
"""Makes the result of a call that has become a task, of its id: only once its caller can read it (K5)."""


class Use(NamedTuple):
    """A request that a worker answers, and how its end is told."""

    inquiry: Inquiry
    asks: frozenset[str] = frozenset()
    """What the handler may ask of its caller; a worker that asks anything else breaks its own declaration."""
    finish: Finish = as_it_is
    round: Round = FIRST
    wraps: bool = False
    """The revisions of 2025 see the tool's structured content below a member."""
    handle: Handle | None = None

    @property
    def is_tool(self) -> bool:
        """Whether a model reads what went wrong (D3)."""
        return self.inquiry.request.envelope.method == "tools/call"

    @property
    def reference(self) -> str:
        """Ties what the client reads to the logs and the trace."""
        return self.inquiry.request.trace.trace_id


class Told(NamedTuple):
    """What is sent."""

    status: int
    body: bytes
    error_type: str | None
    """None for a result."""


def tool_failed(inquiry: Inquiry, text: str, error_type: str) -> Told:
    """Tell of a tool's failure, which a model reads."""
    return Told(200, inquiry.response(reply.failed_result(text)), error_type)


class NoAnswer(Exception):
    """Raised when a client that was asked something has not answered; the sentence is for the model."""


class Ends:
    """Tells ends."""

    def __init__(self, rounds: Rounds, log: FilteringBoundLogger) -> None:
        self._rounds = rounds
        self._log = log

    async def tell_task(self, call: Call, use: Use) -> Told:
        """Compose the handle of a call that has become a task."""
        if use.handle is None:
            self._log.error("a worker sent a task that nobody asked for", pool=call.order.pool)
            return Told(200, reply.error(use.inquiry.request.id, internal(use.reference)), "malformed_end")
        try:
            return Told(200, use.inquiry.response(await use.handle(call.body)), None)
        except Rejection as rejection:
            return self._refused(use, rejection)

    def tell(self, call: Call, use: Use) -> Told:
        """Compose the one answer of a call that has ended."""
        try:
            return self._told(call, use)
        except reply.NotSpliceable as error:
            self._log.error("a worker sent a malformed end", pool=call.order.pool, error=str(error))
            return Told(200, reply.error(use.inquiry.request.id, internal(use.reference)), "malformed_end")
        except TooManyRounds:
            return self._failed(use, _TOO_MANY, "too_many_rounds")
        except Rejection as rejection:
            return self._refused(use, rejection)

    def unanswered(self, use: Use, error: Exception) -> Told:
        """Tell that a call cannot go on after its question."""
        match error:
            case NoAnswer():
                return self._failed(use, str(error), "no_answer")
            case TooManyRounds():
                return self._failed(use, _TOO_MANY, "too_many_rounds")
        self._log.error("a worker sent a malformed end", error=str(error))
        return Told(200, reply.error(use.inquiry.request.id, internal(use.reference)), "malformed_end")

    def _told(self, call: Call, use: Use) -> Told:
        match call.end:
            case End.RESULT if call.line == BAD_ARGUMENTS and use.inquiry.request.envelope.revision == OLDEST:
                return self._refused(use, bad_params(_text(call.body)))
            case End.RESULT:
                error_type = names.TOOL_ERROR if call.line in _FAILURES else None
                return Told(200, use.inquiry.response(use.finish(call.body), wraps=use.wraps), error_type)
            case End.ASK:
                if use.inquiry.request.envelope.is_legacy:
                    return self._failed(use, NO_SESSION, "no_session")
                asked = self._rounds.ask(use.inquiry, use.round, call.body)
                return Told(200, use.inquiry.response(asked), None)
            case End.ERROR:
                return self._error(call, use)
            case None:
                raise RuntimeError("the call has not ended")
            case uncertain:
                return self._uncertain(call, use, uncertain)

    def _uncertain(self, call: Call, use: Use, end: End) -> Told:
        """Tell that nobody knows whether the call ran: of a tool a model must be warned (D3, I3)."""
        self._log.warning("uncertain call", pool=call.order.pool, worker=call.worker, end=end)
        text = _UNCERTAIN[end]
        if use.is_tool:
            text += " The outcome is uncertain: it may have had its effect, in whole or in part. "
            text += "Find out, by a tool that reads, before calling it again."
        return self._failed(use, text, f"uncertain_{end}")

    def rejection(self, call: Call, use: Use) -> Rejection:
        """Say of a call without a result, whose result was to be a part of something, that it failed."""
        self._log.warning("a call failed", pool=call.order.pool, worker=call.worker, end=call.end)
        return internal(use.reference, 200)

    def _error(self, call: Call, use: Use) -> Told:
        """Tell an error frame: the application's own error, or what the edge composes from a closed list (M24)."""
        identifier = use.inquiry.request.id
        kind, words = read_line(call.line)
        if kind == NOT_FOUND:
            return self._refused(use, unknown_resource(str(use.inquiry.request.params.get("uri", ""))))
        if kind == BAD_PARAMS:
            return self._refused(use, bad_params(_message(call.body)))
        if kind == LACKING:
            if use.inquiry.session is not None:
                lacking = ", ".join(word for word in words if word in use.asks)
                return self._failed(use, f"{CANNOT_ANSWER}{lacking}.", "client_lacks")
            if use.inquiry.request.envelope.is_legacy:
                return self._failed(use, NO_SESSION, "no_session")
            return self._refused(use, missing_capabilities(word for word in words if word in use.asks))
        status = 400 if kind == AUTHORED_ERROR and not use.inquiry.request.envelope.is_legacy else 200
        return Told(status, reply.error_body(identifier, call.body), "application_error")

    def _refused(self, use: Use, rejection: Rejection) -> Told:
        rejection = as_told(use.inquiry.request.envelope, rejection)
        body = reply.error(use.inquiry.request.id, rejection)
        return Told(rejection.status, body, str(rejection.code or rejection.status))

    def _failed(self, use: Use, text: str, error_type: str) -> Told:
        """Tell the model where it is a tool, and the client's code otherwise (D3)."""
        request, text = use.inquiry.request, f"{text} (reference {use.reference})"
        if not use.is_tool:
            return Told(200, reply.error(request.id, Rejection(200, INTERNAL_ERROR, text)), error_type)
        return tool_failed(use.inquiry, text, error_type)


def as_told(envelope: Envelope, rejection: Rejection) -> Rejection:
    """An operation's error as the request's revision has it: in 2025 HTTP says 200, and a resource has its own code.

    An error about the caller, its session or the server's capacity keeps its status (L2, M42).
    """
    if not envelope.is_legacy or rejection.status not in _OPERATION or isinstance(rejection, SessionFault):
        return rejection
    is_resource = rejection.code == INVALID_PARAMS and isinstance(rejection.data, dict) and "uri" in rejection.data
    code = RESOURCE_NOT_FOUND if is_resource else rejection.code
    return Rejection(200, code, rejection.message, rejection.data)


def read_line(line: str | None) -> tuple[str | None, list[str]]:
    """Split an error frame's line into what it says and the words after it."""
    words = (line or "").split(" ")
    return " ".join(words[:2]) if line else None, words[2 : 2 + _MOST_LACKING]


def _text(body: bytes) -> str:
    """The one text of a tool's result that says what is wrong with the arguments."""
    try:
        return str(reply.read(body)["content"][0]["text"])
    except (ValueError, LookupError, TypeError):
        raise reply.NotSpliceable("a result must have a text") from None


def _message(body: bytes) -> str:
    """What a worker says is wrong with the parameters."""
    try:
        value = from_json(body)
    except ValueError:
        value = None
    message = value.get("message") if isinstance(value, dict) else None
    if not isinstance(message, str):
        raise reply.NotSpliceable("an error must have a message")
    return message
