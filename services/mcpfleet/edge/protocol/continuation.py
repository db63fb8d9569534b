"""Questions to the client: one request ends with them, and the next one goes on (multi round-trip requests, D16).

The handler's memory travels with the client, sealed and bound to the caller, the endpoint, the method, the target and
the arguments (M52). So a retry may come to any edge, and any worker may run it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json

from mcpfleet.contracts.manifest import canonical
from mcpfleet.contracts.sealing import NotOurs, Unsealable
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.protocol.own_sealer import SealerFailed
from mcpfleet.edge.protocol.sealer import Sealer
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.wire.errors import bad_params, cannot_seal, internal, memory_too_large
from mcpfleet.wire.reply import NotSpliceable, result_body

ASKING: Final = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
"""The requests that a question may be, and the capability that each needs."""
_OF_THE_ROUND: Final = ("_meta", "inputResponses", "requestState")


@dataclass(frozen=True, slots=True)
class Round:
    """The part of a request that comes from the rounds before it."""

    number: int = 0
    """The number of rounds before this one."""
    answers: dict[str, Any] | None = None
    memory: dict[str, Any] | None = None


FIRST: Final = Round()


class TooManyRounds(Exception):
    """Raised when a handler asks more often than MCPFLEET_MAX_ROUNDS allows."""


class Continuation:
    """Seals the memory of a handler that asks, and opens it in the next request."""

    def __init__(self, sealer: Sealer, settings: EdgeSettings) -> None:
        self._sealer = sealer
        self._settings = settings

    async def begin(self, exchange: Exchange) -> Round:
        """Read the round that a request continues; answers without state are legal, and have no memory (M51).

        Each round is a request of its own, with its client's trace. Its span links to the span of the round before.

        Raises:
            Rejection: -32602 where the state was not sealed for this very request, always in the same words. 503 where
                nothing can be opened now.
        """
        params = exchange.params
        answers, state = params.get("inputResponses"), params.get("requestState")
        if state is None:
            return FIRST if answers is None else Round(answers=answers)
        if len(state) > self._settings.state_limit:
            raise bad_params("bad request state")
        try:
            opened = await self._sealer.open(state, bound=_bound(exchange))
        except NotOurs:
            raise bad_params("bad request state") from None
        except Unsealable:
            raise cannot_seal() from None
        except SealerFailed:  # it is logged, and nothing has run (X73)
            raise internal(exchange.trace.trace_id) from None
        if (former := TraceContext.parse(opened.get("trace"))) is not None:
            exchange.span.link(former)
        return Round(opened["number"], answers, opened["memory"])

    async def ask(self, exchange: Exchange, before: Round, body: bytes) -> bytes:
        """Compose the result that asks the client what a handler asked.

        Args:
            exchange: the request.
            before: the round that asked.
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
        if exchange.trace.sampled:
            content["trace"] = exchange.trace.header()
        try:
            state = await self._sealer.seal(content, bound=_bound(exchange), lasts=self._settings.state_lasts)
        except Unsealable:
            raise cannot_seal() from None
        if len(state) > self._settings.state_limit:
            raise memory_too_large()
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


def _bound(exchange: Exchange) -> bytes:
    """Bind a state to its request. Arguments are compared as values, so the order of keys does not matter."""
    caller = exchange.caller
    rest = {name: value for name, value in exchange.params.items() if name not in _OF_THE_ROUND}
    names = (exchange.endpoint, exchange.message.method, caller.subject, caller.client, caller.tenant)
    return hashlib.sha256(canonical([names, rest])).digest()
