"""A remote procedure on one subject: its typed question and answer, and the call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import UnreadableAnswer

_PROBLEMS: Final = 8
_TEXT: Final = 1000
"""Characters of the text about a broken message."""

Question = TypeVar("Question", bound=BaseModel)
Answer = TypeVar("Answer", bound=BaseModel)


@dataclass(frozen=True)
class Rpc(Generic[Question, Answer]):
    """The question that one subject accepts, and its answer."""

    subject: str
    """Has `{token}` in place of the sender's name or a key, for example `catalog.announce.{pool}`."""
    question: type[Question]
    answer: type[Answer]
    asked_by: str
    """The user that NATS permits to ask, with the subject's tokens. Answers go to that user's inboxes only."""
    repeat: bool
    """Asking twice does no more than asking once, so silence is met by asking again."""

    def subject_for(self, **tokens: str) -> str:
        """Return the subject with these tokens."""
        return self.subject.format(**tokens)

    def replies(self, subject: str) -> str:
        """Return the prefix that a reply to a message on this subject must have; see `mcpfleet.bus.bus.AskedBy`."""
        return f"inbox.{self.asked_by.format(**self.tokens(subject))}."

    def pattern(self) -> str:
        """Return the pattern that hears every value of each token."""
        return ".".join("*" if part.startswith("{") else part for part in self.subject.split("."))

    def tokens(self, subject: str) -> dict[str, str]:
        """Read the tokens of a subject, without prefix, that the pattern heard."""
        pairs = zip(self.subject.split("."), subject.split("."), strict=True)
        return {part[1:-1]: value for part, value in pairs if part.startswith("{")}


async def ask(bus: Bus, rpc: Rpc[Question, Answer], question: Question, *, timeout: float, **tokens: str) -> Answer:
    """Ask, and wait at most `timeout` seconds for the answer.

    Raises:
        NotRun: by one of its kinds; nothing was done.
        Unanswered: it was sent, and the time or the link ended first.
        Failed: the receiver answered with a fault.
        UnreadableAnswer: the receiver answered in another form.
    """
    reply = await bus.request(
        rpc.subject_for(**tokens),
        question.model_dump_json(exclude_none=True).encode(),
        timeout=timeout,
        repeat=rpc.repeat,
    )
    try:
        return rpc.answer.model_validate_json(reply.body)
    except ValidationError as error:
        raise UnreadableAnswer(f"{rpc.subject}: {broken_rules(error)}") from None


def broken_rules(error: ValidationError) -> str:
    """Name each field and rule that a message broke, but never the value, which may be secret."""
    details = error.errors(include_input=False, include_url=False, include_context=False)[:_PROBLEMS]
    text = "; ".join(f"{'.'.join(map(str, detail['loc'])) or 'message'}: {detail['type']}" for detail in details)
    return text[:_TEXT]
