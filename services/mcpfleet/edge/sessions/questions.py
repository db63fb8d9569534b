"""Requests that the server makes of clients of 2025: sent on the stream of the call that asks, answered to any edge."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError, NoResponders, is_undone
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.sessions import ANSWER, AnswerGiven, GiveAnswer, SessionsClient
from mcpfleet.wire.envelope import Response
from mcpfleet.wire.errors import maybe_done, unchanged

_ID: Final = re.compile(r"(?P<edge>[0-9a-f]{16})-[0-9a-f]{32}")
_LONGEST_MESSAGE: Final = 500
"""Characters of a client's error that a model reads."""
GIVEN_UP: Final = "The server that asked the client had to stop."


@dataclass(slots=True, eq=False)
class Question:
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


class Asked:
    """The questions that a handler asked at once; where one is refused, all are in vain."""

    def __init__(self, session: str, edge: str, keys: Iterable[str]) -> None:
        self.session = session
        self.questions = {key: Question(f"{edge}-{secrets.token_hex(16)}") for key in keys}
        """By the handler's keys."""
        self.settled = anyio.Event()
        """Set when all are answered, or one is refused."""

    @property
    def refusal(self) -> str | None:
        """Why it is in vain, if it is."""
        return next((each.refusal for each in self.questions.values() if each.refusal is not None), None)

    @property
    def unsettled(self) -> list[Question]:
        """Those that the client has not responded to."""
        return [question for question in self.questions.values() if not question.is_settled]

    def settle(self, question: Question, result: dict[str, Any] | None, refusal: str | None) -> None:
        """Take what becomes of one; the first counts."""
        if not question.is_settled:
            question.result, question.refusal = result, refusal
        if self.refusal is not None or not self.unsettled:
            self.settled.set()


class Questions:
    """Knows the questions that wait at this edge; each waits within an open request, which bounds their number."""

    def __init__(self, bus: Bus, client: SessionsClient, *, log: FilteringBoundLogger) -> None:
        self._bus = bus
        self._client = client
        self._log = log
        self._waiting: dict[str, tuple[Asked, Question]] = {}
        """By the questions' ids."""

    async def listen(self) -> None:
        """Hear from now on what clients answered at other edges."""
        subject = ANSWER.subject_for(edge=self._bus.process)
        await self._bus.subscribe(subject, self._on_answer, asked_by=ANSWER.replies)

    @contextmanager
    def asking(self, session: str, keys: Iterable[str]) -> Iterator[Asked]:
        """Wait for the answers to a handler's questions, for the length of a block."""
        asked = Asked(session, self._bus.process, keys)
        mine = {question.id: (asked, question) for question in asked.questions.values()}
        self._waiting |= mine
        try:
            yield asked
        finally:
            for identifier in mine:
                del self._waiting[identifier]

    def give_up(self) -> None:
        """Let nobody wait any more: this edge leaves."""
        for asked, question in list(self._waiting.values()):
            asked.settle(question, None, GIVEN_UP)

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
        asked, question = self._waiting.get(given.question, (None, None))
        if asked is None or question is None or asked.session != given.session:
            return False
        asked.settle(question, given.result, _refusal(given.error) if given.result is None else None)
        return True


def _refusal(error: dict[str, Any] | None) -> str:
    message = error.get("message") if error else None
    said = message[:_LONGEST_MESSAGE] if isinstance(message, str) and message else "an error"
    return f"The client answered what it was asked with an error: {said.rstrip('.')}."
