"""Requests that the server makes of clients of 2025: sent on the stream of the call that asks, answered to any edge."""

from __future__ import annotations

import re
import secrets
from typing import Any, Final

import anyio
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError, NoResponders
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.sessions import ANSWER, AnswerGiven, GiveAnswer, SessionsClient
from mcpfleet.wire.envelope import Response
from mcpfleet.wire.errors import not_answered

_ID: Final = re.compile(r"(?P<edge>[0-9a-f]{16})-(?P<question>[0-9a-f]{32})")


class Question:
    """One request to a client, until it is answered."""

    def __init__(self, edge: str, session: str) -> None:
        self.session = session
        self.name = secrets.token_hex(16)
        self.id = f"{edge}-{self.name}"
        """Of the request: by it any edge knows who waits for the response."""
        self.answered = anyio.Event()
        self.result: dict[str, Any] | None = None
        """None where the client answered with an error, or the edge had to leave before."""


class Questions:
    """Knows the questions that wait at this edge; each waits within an open request, which bounds their number."""

    def __init__(self, bus: Bus, client: SessionsClient, *, log: FilteringBoundLogger) -> None:
        self._bus = bus
        self._client = client
        self._log = log
        self._waiting: dict[str, Question] = {}

    async def listen(self) -> None:
        """Hear from now on what clients answered at other edges."""
        subject = ANSWER.subject_for(edge=self._bus.process)
        await self._bus.subscribe(subject, self._on_answer, asked_by=ANSWER.replies)

    def begin(self, session: str) -> Question:
        """Wait for an answer from now on, until `end`."""
        question = Question(self._bus.process, session)
        self._waiting[question.name] = question
        return question

    def end(self, question: Question) -> None:
        """Wait no more."""
        self._waiting.pop(question.name, None)

    def give_up(self) -> None:
        """Let nobody wait any more: this edge leaves."""
        for question in list(self._waiting.values()):
            question.answered.set()

    async def give(self, session: str, response: Response) -> None:
        """Hand a client's response to who waits for it; one that nobody waits for means nothing (M75).

        Raises:
            Rejection: 504 where nobody knows whether it has arrived.
        """
        found = _ID.fullmatch(response.id)
        if found is None:
            return
        given = GiveAnswer(session=session, question=found["question"], result=response.result, error=response.error)
        if self._take(given) or found["edge"] == self._bus.process:
            return
        try:
            await self._client.answer(found["edge"], given)
        except NoResponders:  # its edge has died, and the call with it
            return
        except BusError as error:
            self._log.warning("a client's answer did not arrive", edge=found["edge"], error=str(error))
            raise not_answered("the edge that asked") from None

    def _on_answer(self, message: Incoming) -> None:
        try:
            given = GiveAnswer.model_validate_json(message.body)
        except ValidationError:
            self._log.warning("malformed answer", subject=message.subject)
            return
        self._bus.respond(message, AnswerGiven(waited=self._take(given)).model_dump_json().encode())

    def _take(self, given: GiveAnswer) -> bool:
        question = self._waiting.get(given.question)
        if question is None or question.session != given.session:
            return False
        if not question.answered.is_set():
            question.result = given.result
            question.answered.set()
        return True
