"""Asks a client of 2025 within its call for the input that a handler needs, and brings the answers back (D11, M81).

The handler does not wait meanwhile: it has ended with its question, as for a client of 2026-07-28. So a user may take
minutes and holds no worker's slot. The requests go out on the call's stream, and any edge may get the responses.
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
    """Of the request: by it any edge knows who waits for the response."""
    result: dict[str, Any] | None = None
    refusal: str | None = None
    """Why there will be no result."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is waited for."""
        return self.result is not None or self.refusal is not None


class OpenRequests:
    """The requests that a handler made at once; where one is refused, all are in vain."""

    def __init__(self, session: str, edge: str, keys: Iterable[str]) -> None:
        self.session = session
        self.requests = {key: ClientRequest(f"{edge}-{secrets.token_hex(16)}") for key in keys}
        """By the handler's keys."""
        self.settled = anyio.Event()
        """Set when all are answered, or one is refused."""

    @property
    def refusal(self) -> str | None:
        """Why it is in vain, if it is."""
        return next((each.refusal for each in self.requests.values() if each.refusal is not None), None)

    @property
    def unsettled(self) -> list[ClientRequest]:
        """Those that the client has not responded to."""
        return [request for request in self.requests.values() if not request.is_settled]

    def settle(self, request: ClientRequest, result: dict[str, Any] | None, refusal: str | None) -> None:
        """Take what becomes of one; the first counts."""
        if not request.is_settled:
            request.result, request.refusal = result, refusal
        if self.refusal is not None or not self.unsettled:
            self.settled.set()


class ClientRequests:
    """The requests that wait at this edge for responses; each waits within an open call, which bounds their number."""

    def __init__(self, bus: Bus, client: SessionsClient, *, log: FilteringBoundLogger) -> None:
        self._bus = bus
        self._client = client
        self._log = log
        self._waiting: dict[str, tuple[OpenRequests, ClientRequest]] = {}
        """By the questions' ids."""

    async def listen(self) -> None:
        """Hear from now on what clients answered at other edges."""
        subject = ANSWER.subject_for(edge=self._bus.process)
        await self._bus.subscribe(subject, self._on_answer, asked_by=ANSWER.replies)

    @contextmanager
    def waiting(self, session: str, keys: Iterable[str]) -> Iterator[OpenRequests]:
        """Wait for the answers to a handler's questions, for the length of a block."""
        asked = OpenRequests(session, self._bus.process, keys)
        mine = {request.id: (asked, request) for request in asked.requests.values()}
        self._waiting |= mine
        try:
            yield asked
        finally:
            for identifier in mine:
                del self._waiting[identifier]

    def give_up(self) -> None:
        """Let nobody wait any more: this edge leaves."""
        for asked, request in list(self._waiting.values()):
            asked.settle(request, None, texts.ASKER_STOPPED)

    async def give(self, session: str, response: Response) -> None:
        """Hand a client's response to who waits for it; one that nobody waits for means nothing (M75).

        Raises:
            Rejection: 504 where nobody knows whether it has arrived.
        """
        found = _ID.fullmatch(response.id)
        if found is None:
            return
        given = GiveAnswer(session=session, question=response.id, result=response.result, error=response.error)
        if self._take(given) or found["edge"] == self._bus.process:
            return
        try:
            await self._client.answer(found["edge"], given)
        except NoResponders:  # its edge has died, and the call with it
            return
        except BusError as error:
            self._log.warning("a client's answer did not arrive", edge=found["edge"], error=str(error))
            raise (unchanged if is_undone(error) else maybe_done)("the edge that asked") from None

    def _on_answer(self, message: Incoming) -> None:
        try:
            given = GiveAnswer.model_validate_json(message.body)
        except ValidationError:
            self._log.warning("malformed answer", subject=message.subject)
            return
        self._bus.respond(message, AnswerGiven(waited=self._take(given)).model_dump_json().encode())

    def _take(self, given: GiveAnswer) -> bool:
        asked, request = self._waiting.get(given.question, (None, None))
        if asked is None or request is None or asked.session != given.session:
            return False
        asked.settle(request, given.result, _refusal(given.error) if given.result is None else None)
        return True


class Elicitation:
    """Asks clients."""

    def __init__(self, requests: ClientRequests, settings: EdgeSettings) -> None:
        self._requests = requests
        self._settings = settings

    async def ask(self, exchange: Exchange, before: Round, body: bytes) -> Round:
        """Ask all that a handler asks at once; returns what its next run brings along.

        Args:
            exchange: the request, on whose stream the questions go.
            before: what the run that asked brought along.
            body: the worker's `ask` frame.

        Raises:
            NoAnswer: there is none to go on with; the sentence is for the model.
            TooManyRounds: it was asked often enough.
            NotSpliceable: the worker's frame is malformed.
            ClientGone: nobody is left to be asked.
            ClientStalled: the client does not read.
        """
        if before.number >= self._settings.max_rounds:
            raise TooManyRounds
        if exchange.is_gone:
            raise ClientGone
        questions, memory = read_asked(body)
        assert exchange.session is not None
        with self._requests.waiting(exchange.session.key, questions) as asked:
            events = [
                _event(request, questions[key], exchange.revision.name) for key, request in asked.requests.items()
            ]
            await _send(exchange, b"".join(events))
            is_settled = await while_there(exchange, lambda: self._wait(exchange, asked))
            if not is_settled or asked.refusal is not None:
                await _send(exchange, b"".join(map(_taken_back, asked.unsettled)))
                raise NoAnswer(f"{asked.refusal or texts.NO_ANSWER} {texts.NOTHING_MORE_RUN}")
            answers = {key: request.result for key, request in asked.requests.items()}
        return Round(before.number + 1, answers, memory)

    async def _wait(self, exchange: Exchange, asked: OpenRequests) -> bool:
        """Wait until it is settled, with a sign of life now and then: proxies cut quiet connections; false in vain."""
        with anyio.move_on_after(self._settings.answer_wait):
            while not asked.settled.is_set():
                with anyio.move_on_after(self._settings.keepalive):
                    await asked.settled.wait()
                    break
                await exchange.send_part(reply.KEEPALIVE)
            return True
        return False


def _event(request: ClientRequest, asked: dict[str, Any], revision: str) -> bytes:
    """The request as an event."""
    method = asked["method"]
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": request.id, "method": method}
    if params := asked.get("params"):
        try:
            message["params"] = projection.question(method, params, revision, request.id)
        except projection.NotInRevision as error:
            raise NoAnswer(f"{texts.CANNOT_BE_ASKED}{error}.") from None
        except (LookupError, TypeError, AttributeError):
            raise reply.NotSpliceable("a question's form is malformed") from None
    return reply.event(to_json(message))


def _taken_back(request: ClientRequest) -> bytes:
    """Say that nobody waits for an answer any more."""
    params = {"requestId": request.id, "reason": "nobody waits for it any more"}
    return reply.event(to_json({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))


async def _send(exchange: Exchange, data: bytes) -> None:
    if not exchange.is_streaming:
        await exchange.open_stream()
    if data:
        await exchange.send_part(data)


def _refusal(error: dict[str, Any] | None) -> str:
    message = error.get("message") if error else None
    said = message[:_LONGEST_MESSAGE] if isinstance(message, str) and message else "an error"
    return f"{texts.ANSWERED_WITH_ERROR}: {said.rstrip('.')}."
