"""The end of a call as its client gets it: the one place where ends become results and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from mcp_types import INTERNAL_ERROR
from pydantic_core import from_json, to_json
from structlog.typing import FilteringBoundLogger

from mcpfleet.contracts.access import is_scope
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
    SCOPES_NEEDED,
    UNCERTAIN,
    UNDECIDED,
    UPSTREAM,
)
from mcpfleet.edge.calls.call_request import CallRequest
from mcpfleet.edge.calls.in_flight import Call, End
from mcpfleet.edge.protocol.continuation import Continuation, TooManyRounds
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.protocol.own_sealer import SealerFailed
from mcpfleet.edge.protocol.revision import Input
from mcpfleet.telemetry import names
from mcpfleet.wire import reply, texts
from mcpfleet.wire.errors import (
    NO_HEADERS,
    NotAnswered,
    Rejection,
    bad_params,
    forbidden,
    internal,
    missing_capabilities,
    no_capacity,
    not_answered,
    unknown_resource,
)
from mcpfleet.wire.language import CONTENT_LANGUAGE_META_KEY

_UNCERTAIN: Final = {
    End.UNACCEPTED: texts.UNACCEPTED,
    End.LOST: texts.WORKER_LOST,
    End.RESULT_LOST: texts.RESULT_LOST,
    End.GIVEN_UP: texts.EDGE_STOPPED,
    End.OVERDUE: texts.OVERDUE,
}
_FAILURES: Final = frozenset({FAILED, BAD_ARGUMENTS, NOT_BEGUN, UNCERTAIN})
"""The lines of results that are a tool's failures."""
_RETRY_AFTER: Final = 2
"""Seconds after which a client may try again what its source was not there for."""
_MOST_LACKING: Final = 8
"""Capabilities that a worker may say are missing."""


class CallEnd(NamedTuple):
    """The last message of a call to its client."""

    status: int
    body: bytes
    error_type: str | None
    """None for a result."""
    headers: Mapping[str, str] = NO_HEADERS
    """Further headers, where the end is the whole answer."""


def tool_failed(exchange: Exchange, text: str, error_type: str) -> CallEnd:
    """Return a tool's failure, which a model reads."""
    return CallEnd(200, exchange.response(reply.failed_result(text)), error_type)


class NoAnswer(Exception):
    """Raised when a client did not give the input that it was asked for; the sentence is for the model."""


class CallEnds:
    """Composes ends."""

    def __init__(
        self,
        continuation: Continuation,
        log: FilteringBoundLogger,
        insufficient_scope: Callable[[str, tuple[str, ...]], Rejection] = lambda _endpoint, _scopes: forbidden(),
    ) -> None:
        self._continuation = continuation
        self._insufficient_scope = insufficient_scope
        self._log = log

    async def of_task(self, call: Call, request: CallRequest) -> CallEnd:
        """Compose the handle of a call that has become a task."""
        if request.handle is None:
            self._log.error("unexpected task", pool=call.order.pool)
            return _malformed(request)
        try:
            return CallEnd(200, request.exchange.response(await request.handle(call.body)), None)
        except NotAnswered:  # which would say that nothing was run, and its handler runs
            return self._failed(request, texts.UNCERTAIN_TASK, "uncertain_task")
        except Rejection as rejection:
            return self._refused(request, rejection)

    async def of_call(self, call: Call, request: CallRequest) -> CallEnd:
        """Compose the one answer of a call that has ended."""
        try:
            return await self._told(call, request)
        except SealerFailed:  # it is logged; the handler has run (X73)
            return _malformed(request)
        except reply.NotSpliceable as error:
            self._log.error("malformed end", pool=call.order.pool, error=str(error))
            return _malformed(request)
        except TooManyRounds:
            return self._failed(request, texts.TOO_MANY_ROUNDS, "too_many_rounds")
        except Rejection as rejection:
            return self._refused(request, rejection)

    def unanswered(self, request: CallRequest, error: Exception) -> CallEnd:
        """Return that a call cannot go on after its question."""
        match error:
            case NoAnswer():
                return self._failed(request, str(error), "no_answer")
            case TooManyRounds():
                return self._failed(request, texts.TOO_MANY_ROUNDS, "too_many_rounds")
        self._log.error("malformed end", error=str(error))
        return _malformed(request)

    async def _told(self, call: Call, request: CallRequest) -> CallEnd:
        match call.end:
            case End.RESULT if call.line == BAD_ARGUMENTS and request.exchange.revision.bad_arguments_are_errors:
                return self._refused(request, bad_params(_text(call.body)))
            case End.RESULT:
                error_type = names.TOOL_ERROR if call.line in _FAILURES else None
                result = request.finish(call.body)
                return CallEnd(200, request.exchange.response(result, request.definition), error_type)
            case End.ASK:
                if request.exchange.revision.input is not Input.NEXT_REQUEST:
                    return self._failed(request, texts.NEEDS_SESSION, "no_session")
                asked = await self._continuation.ask(request.exchange, request.round, call.body)
                return CallEnd(200, request.exchange.response(asked), None)
            case End.ERROR:
                return self._error(call, request)
            case None:
                raise RuntimeError("the call has not ended")
            case uncertain:
                return self._uncertain(call, request, uncertain)

    def _uncertain(self, call: Call, request: CallRequest, end: End) -> CallEnd:
        """Return that it is unknown whether the call ran; a model that called a tool is warned (D3, I3)."""
        self._log.warning("uncertain call", pool=call.order.pool, worker=call.worker, end=end)
        text = _UNCERTAIN[end]
        if request.is_tool:
            text += f" {texts.UNCERTAIN_CALL}"
        elif request.definition.kind == "method":
            text += f" {texts.UNCERTAIN_METHOD}"
        return self._failed(request, text, f"uncertain_{end}")

    def rejection(self, call: Call, request: CallRequest) -> Rejection:
        """Return the error of a call whose result was to be a part of something, and that has none."""
        self._log.warning("call failed", pool=call.order.pool, worker=call.worker, end=call.end)
        return internal(request.reference, 200)

    def _error(self, call: Call, request: CallRequest) -> CallEnd:
        """Return the application's own error, or one that the edge composes from a closed list (M24)."""
        kind, words = read_line(call.line)
        if kind == SCOPES_NEEDED:
            return self._lacks_scopes(request, words)
        if kind == LACKING:
            return self._lacking(request, [word for word in words if word in request.asks])
        rejection = self._composed(call, request, kind)
        if rejection is not None:
            return self._refused(request, rejection)
        if kind == UPSTREAM:
            rejection = request.exchange.revision.upstream_error(*_upstream(call.body))
            return CallEnd(rejection.status, reply.error(request.exchange.id, rejection), "upstream_error")
        status = request.exchange.revision.status(400) if kind == AUTHORED_ERROR else 200
        body = call.body
        if (language := request.exchange.told_language) is not None and LOCALIZED in (call.line or "").split(" "):
            body = with_language(body, language)
            request.exchange.state_language(language)
        return CallEnd(status, reply.error_body(request.exchange.id, body), "application_error")

    @staticmethod
    def _composed(call: Call, request: CallRequest, kind: str | None) -> Rejection | None:
        """Return the error that the edge composes for an error frame's line; None where it passes an error on."""
        if kind == NOT_FOUND:
            return unknown_resource(str(request.exchange.params.get("uri", "")))
        if kind == UNDECIDED:  # nothing was read
            return not_answered("the resource's permit")
        if kind == BAD_PARAMS:
            return bad_params(_message(call.body))
        return no_capacity(_RETRY_AFTER) if kind == NOT_RUN else None

    def _lacking(self, request: CallRequest, capabilities: list[str]) -> CallEnd:
        """Return that the handler has asked for input which this client cannot give."""
        match request.exchange.revision.input:
            case Input.NEXT_REQUEST:
                return self._refused(request, missing_capabilities(capabilities))
            case Input.OWN_RESPONSE:
                return self._failed(request, f"{texts.CANNOT_ANSWER}{', '.join(capabilities)}.", "client_lacks")
            case Input.NONE:
                return self._failed(request, texts.NEEDS_SESSION, "no_session")

    def _lacks_scopes(self, request: CallRequest, scopes: Iterable[str]) -> CallEnd:
        """Return that the caller lacks a scope that the handler found to be needed: 403 with all scopes (X55, M63).

        A model reads them where the answer is a stream already.
        """
        needed = tuple(dict.fromkeys((*request.scopes, *filter(is_scope, scopes))))
        if request.exchange.is_streaming:
            return self._failed(request, texts.needs_scopes(needed), names.INSUFFICIENT_SCOPE)
        rejection = self._insufficient_scope(request.exchange.endpoint, needed)
        body = reply.error(request.exchange.id, rejection)
        return CallEnd(rejection.status, body, names.INSUFFICIENT_SCOPE, rejection.headers)

    def _refused(self, request: CallRequest, rejection: Rejection) -> CallEnd:
        rejection = request.exchange.revision.rejection(rejection)
        body = reply.error(request.exchange.id, rejection)
        return CallEnd(rejection.status, body, str(rejection.code or rejection.status))

    def _failed(self, request: CallRequest, text: str, error_type: str) -> CallEnd:
        """Return a failure: to the model for a tool, to the client's code otherwise (D3)."""
        exchange, text = request.exchange, f"{text} (reference {request.reference})"
        if not request.is_tool:
            return CallEnd(200, reply.error(exchange.id, Rejection(200, INTERNAL_ERROR, text)), error_type)
        return tool_failed(exchange, text, error_type)


def _malformed(request: CallRequest) -> CallEnd:
    """Return an internal error: the worker's message cannot be passed on."""
    return CallEnd(200, reply.error(request.exchange.id, internal(request.reference)), "malformed_end")


def read_line(line: str | None) -> tuple[str | None, list[str]]:
    """Split an error frame's line into what it says and the words after it."""
    words = (line or "").split(" ")
    return " ".join(words[:2]) if line else None, words[2 : 2 + _MOST_LACKING]


def with_language(body: bytes, language: str) -> bytes:
    """Return a worker's error with the language of its text in its data; data that is no object stays as it is (X35).

    Raises:
        NotSpliceable: it is malformed.
    """
    try:
        value = reply.read(body)
        data = value.get("data")
        if data is not None and not isinstance(data, dict):
            return body
        meta = {**(data or {}).get("_meta", {}), CONTENT_LANGUAGE_META_KEY: language}
        return to_json({**value, "data": {**(data or {}), "_meta": meta}})
    except (ValueError, AttributeError, TypeError):
        raise reply.NotSpliceable("an error must be an object") from None


def _text(body: bytes) -> str:
    """Return a worker's sentence about bad arguments, the one text of its result."""
    try:
        return str(reply.read(body)["content"][0]["text"])
    except (ValueError, LookupError, TypeError):
        raise reply.NotSpliceable("a result must have a text") from None


def _upstream(body: bytes) -> tuple[int, str, Any]:
    """Return the code, message and data of a source's own error."""
    try:
        error = reply.read(body)
        return int(error["code"]), str(error["message"]), error.get("data")
    except (ValueError, LookupError, TypeError, AttributeError):
        raise reply.NotSpliceable("an error must have a code and a message") from None


def _message(body: bytes) -> str:
    """Return a worker's sentence about bad parameters."""
    try:
        value = from_json(body)
    except ValueError:
        value = None
    message = value.get("message") if isinstance(value, dict) else None
    if not isinstance(message, str):
        raise reply.NotSpliceable("an error must have a message")
    return message
