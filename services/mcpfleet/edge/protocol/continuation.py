"""Questions to the client, asked by ending the request and going on in the next one (multi round-trip requests, D16).

What the handler remembers travels with the client, sealed: bound to the caller, the endpoint, the method, the target
and the arguments (M52). So a retry may come to any edge, and be run by any worker.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json

from mcpfleet.edge.protocol.exchange import Inquiry
from mcpfleet.edge.protocol.sealer import NotOurs, Protector, Unsealable
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.wire.errors import Rejection, bad_params, cannot_seal
from mcpfleet.wire.reply import NotSpliceable, result_body
from mcpfleet.wire.strict import canonical

ASKING: Final = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
"""The requests that a question may be, and the capability that each needs."""
_OF_THE_ROUND: Final = ("_meta", "inputResponses", "requestState")


@dataclass(frozen=True, slots=True)
class Round:
    """What a request brings along from the rounds before it."""

    number: int = 0
    """Rounds that were asked before."""
    answers: dict[str, Any] | None = None
    memory: dict[str, Any] | None = None


FIRST: Final = Round()


class TooManyRounds(Exception):
    """Raised when a handler asks more often than clients answer."""


class Rounds:
    """Opens what retries bring along, and seals what questions leave."""

    def __init__(self, protector: Protector, settings: EdgeSettings) -> None:
        self._protector = protector
        self._settings = settings

    def begin(self, inquiry: Inquiry) -> Round:
        """Read what a request brings along; answers without state are legal, and have no memory (M51).

        Each round is a request of its own, with its client's trace; its span is linked to that of the round before.

        Raises:
            Rejection: -32602 where the state was not sealed for this very request, always in the same words.
        """
        params = inquiry.request.params
        answers, state = params.get("inputResponses"), params.get("requestState")
        if state is None:
            return FIRST if answers is None else Round(answers=answers)
        if len(state) > self._settings.state_limit:
            raise bad_params("bad request state")
        try:
            opened = self._protector.open(state, bound=_bound(inquiry))
        except NotOurs:
            raise bad_params("bad request state") from None
        if (former := TraceContext.parse(opened.get("trace"))) is not None:
            inquiry.request.span.link(former)
        return Round(opened["number"], answers, opened["memory"])

    def ask(self, inquiry: Inquiry, before: Round, body: bytes) -> bytes:
        """Compose the result that asks the client what a handler asked.

        Args:
            inquiry: the request.
            before: what it brought along.
            body: the worker's `ask` frame.

        Raises:
            Rejection: 503 where nothing can be sealed.
            TooManyRounds: clients give up after as many.
            NotSpliceable: the worker's frame is malformed.
        """
        if before.number >= self._settings.max_rounds:
            raise TooManyRounds
        questions, memory = read_asked(body)
        content: dict[str, Any] = {"number": before.number + 1, "memory": memory}
        if inquiry.request.trace.sampled:
            content["trace"] = inquiry.request.trace.header()
        try:
            state = self._protector.seal(content, bound=_bound(inquiry), lasts=self._settings.state_lasts)
        except Unsealable:
            raise cannot_seal() from None
        if len(state) > self._settings.state_limit:
            raise Rejection(500, -32603, "What the handler remembers is too large for a request: make it a task")
        fields = {"resultType": "input_required", "inputRequests": questions, "requestState": state}
        return result_body(fields)


def read_asked(body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a worker's `ask` frame: the questions by their keys, and what the handler remembers.

    Raises:
        NotSpliceable: it is malformed.
    """
    try:
        value = from_json(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise NotSpliceable("a question must be an object")
    questions, memory = value.get("inputRequests"), value.get("memory")
    if not isinstance(questions, dict) or not questions or not isinstance(memory, dict):
        raise NotSpliceable("a question must have inputRequests and a memory")
    for question in questions.values():
        if not isinstance(question, dict) or question.get("method") not in ASKING:
            raise NotSpliceable("a question must be one that clients know")
    return questions, memory


def _bound(inquiry: Inquiry) -> bytes:
    """Name what a state is good for; arguments are compared as values, so that the order of keys does not matter."""
    request, principal = inquiry.request, inquiry.principal
    rest = {name: value for name, value in request.params.items() if name not in _OF_THE_ROUND}
    names = (request.endpoint, request.envelope.method, principal.subject, principal.client, principal.tenant)
    return hashlib.sha256(canonical([names, rest])).digest()
