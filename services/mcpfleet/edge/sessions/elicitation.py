"""Asks a client of 2025 within its call for the input that a handler needs, and returns the answers (D11, M81).

The handler does not wait meanwhile: it has ended with its request for input, as for a client of 2026-07-28. So a user
may take minutes and occupies no worker slot. The requests go out on the call's stream, and any edge may receive the
responses.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
from pydantic import ValidationError
from pydantic_core import to_json
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError, NoResponders, is_undone
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.sessions import ANSWER, AnswerGiven, GiveAnswer, SessionsClient
from mcpfleet.edge.calls.end import NoAnswer
from mcpfleet.edge.protocol.continuation import Round, TooManyRounds, read_asked
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.http_exchange import ClientGone, while_there
from mcpfleet.wire import projection, reply, texts
from mcpfleet.wire.envelope import Response
from mcpfleet.wire.errors import maybe_done, unchanged

_ID: Final = re.compile(r"(?P<edge>[0-9a-f]{16})-[0-9a-f]{32}")
_LONGEST_MESSAGE: Final = 500
"""Characters of a client's error that a model reads."""


@dataclass(slots=True, eq=False)
class ClientRequest:
    """One request to a client."""

    id: str
    """Tells any edge which edge waits for the response."""
    result: dict[str, Any] | None = None
    refusal: str | None = None
    """Why there is no result."""

    @property
    def is_settled(self) -> bool:
        """Whether it has a result or a refusal."""
        return self.result is not None or self.refusal is not None


class OpenRequests:
    """The requests that a handler made together; one refusal ends all."""

    def __init__(self, session: str, edge: str, keys: Iterable[str]) -> None:
        self.session = session
        self.requests = {key: ClientRequest(f"{edge}-{secrets.token_hex(16)}") for key in keys}
        """By the handler's keys."""
        self.settled = anyio.Event()
        """Set when all are answered, or one is refused."""

    @property
    def refusal(self) -> str | None:
        """The first refusal; None where there is none."""
        return next((each.refusal for each in self.requests.values() if each.refusal is not None), None)

    @property
    def unsettled(self) -> list[ClientRequest]:
        """The requests without a response."""
        return [request for request in self.requests.values() if not request.is_settled]

    def settle(self, request: ClientRequest, result: dict[str, Any] | None, refusal: str | None) -> None:
        """Set the result or refusal of a request; the first one counts."""
        if not request.is_settled:
            request.result, request.refusal = result, refusal
        if self.refusal is not None or not self.unsettled:
            self.settled.set()


class ClientRequests:
    """The requests that wait at this edge for responses. Each belongs to an open call, which bounds their number."""

    def __init__(self, bus: Bus, client: SessionsClient, *, log: FilteringBoundLogger) -> None:
        self._bus = bus
        self._client = client
        self._log = log
        self._waiting: dict[str, tuple[OpenRequests, ClientRequest]] = {}
        """By the requests' ids."""

    async def listen(self) -> None:
        """Receive responses that clients sent to other edges, from now on."""
        subject = ANSWER.subject_for(edge=self._bus.process)
        await self._bus.subscribe(subject, self._on_answer, asked_by=ANSWER.replies)

    @contextmanager
    def waiting(self, session: str, keys: Iterable[str]) -> Iterator[OpenRequests]:
        """Wait for the responses to a handler's requests, for the length of a block."""
        opened = OpenRequests(session, self._bus.process, keys)
        mine = {request.id: (opened, request) for request in opened.requests.values()}
        self._waiting |= mine
        try:
            yield opened
        finally:
            for identifier in mine:
                del self._waiting[identifier]

    def give_up(self) -> None:
        """Refuse all waiting requests, since this edge stops."""
        for opened, request in list(self._waiting.values()):
            opened.settle(request, None, texts.ASKER_STOPPED)

    async def give(self, session: str, response: Response) -> None:
        """Give a client's response to the call that waits for it; a response without such a call is dropped (M75).

        Raises:
            Rejection: 504 where it is unknown whether the response has arrived.
        """
        match = _ID.fullmatch(response.id)
        if match is None:
            return
        answer = GiveAnswer(session=session, question=response.id, result=response.result, error=response.error)
        if self._take(answer) or match["edge"] == self._bus.process:
            return
        try:
            await self._client.answer(match["edge"], answer)
        except NoResponders:  # its edge has died, and the call with it
            return
        except BusError as error:
            self._log.warning("client response not delivered", edge=match["edge"], error=str(error))
            raise (unchanged if is_undone(error) else maybe_done)("the edge that asked") from None

    def _on_answer(self, message: Incoming) -> None:
        try:
            answer = GiveAnswer.model_validate_json(message.body)
        except ValidationError:
            self._log.warning("malformed answer", subject=message.subject)
            return
        self._bus.respond(message, AnswerGiven(waited=self._take(answer)).model_dump_json().encode())

    def _take(self, answer: GiveAnswer) -> bool:
        opened, request = self._waiting.get(answer.question, (None, None))
        if opened is None or request is None or opened.session != answer.session:
            return False
        opened.settle(request, answer.result, _refusal(answer.error) if answer.result is None else None)
        return True


class Elicitation:
    """Asks clients for input."""

    def __init__(self, requests: ClientRequests, settings: EdgeSettings) -> None:
        self._requests = requests
        self._settings = settings

    async def ask(self, exchange: Exchange, before: Round, body: bytes) -> Round:
        """Send all requests of a handler together, and return the round that brings it the answers.

        Args:
            exchange: the call, on whose stream the requests go.
            before: the round that asked.
            body: the worker's `ask` frame.

        Raises:
            NoAnswer: there are no answers; the sentence is for the model.
            TooManyRounds: the handler has asked as often as it may.
            NotSpliceable: the worker's frame is malformed.
            ClientGone: the client has left.
            ClientStalled: the client does not read.
        """
        if before.number >= self._settings.max_rounds:
            raise TooManyRounds
        if exchange.is_gone:
            raise ClientGone
        requests, memory = read_asked(body)
        assert exchange.session is not None
        with self._requests.waiting(exchange.session.key, requests) as opened:
            events = [
                _event(request, requests[key], exchange.revision.name) for key, request in opened.requests.items()
            ]
            await exchange.send_events(b"".join(events))
            is_settled = await while_there(exchange, lambda: self._wait(exchange, opened))
            if not is_settled or opened.refusal is not None:
                await exchange.send_events(b"".join(map(_cancelled, opened.unsettled)))
                raise NoAnswer(f"{opened.refusal or texts.NO_ANSWER} {texts.NOTHING_MORE_RUN}")
            answers = {key: request.result for key, request in opened.requests.items()}
        return Round(before.number + 1, answers, memory)

    async def _wait(self, exchange: Exchange, opened: OpenRequests) -> bool:
        """Wait for the responses, and send keepalives; return False where they do not come in time."""
        with anyio.move_on_after(self._settings.answer_wait):
            while not opened.settled.is_set():
                with anyio.move_on_after(self._settings.keepalive):
                    await opened.settled.wait()
                    break
                await exchange.send_part(reply.KEEPALIVE)
            return True
        return False


def _event(request: ClientRequest, content: dict[str, Any], revision: str) -> bytes:
    """Return a request as an event of its stream."""
    method = content["method"]
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": request.id, "method": method}
    if params := content.get("params"):
        try:
            message["params"] = projection.question(method, params, revision, request.id)
        except projection.NotInRevision as error:
            raise NoAnswer(f"{texts.CANNOT_BE_ASKED}{error}.") from None
        except (LookupError, TypeError, AttributeError):
            raise reply.NotSpliceable("a question's form is malformed") from None
    return reply.event(to_json(message))


def _cancelled(request: ClientRequest) -> bytes:
    """Return the event that cancels a request."""
    params = {"requestId": request.id, "reason": "nobody waits for it any more"}
    return reply.event(to_json({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))


def _refusal(error: dict[str, Any] | None) -> str:
    message = error.get("message") if error else None
    text = message[:_LONGEST_MESSAGE] if isinstance(message, str) and message else "an error"
    return f"{texts.ANSWERED_WITH_ERROR}: {text.rstrip('.')}."
