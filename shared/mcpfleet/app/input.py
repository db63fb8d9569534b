"""Asking the client for input: questions, and the parts that answer them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from mcpfleet.app.errors import AskError, ClientLacks

Reply = TypeVar("Reply")


class Unusable(ValueError):
    """Raised when an answer has another form than the question asks for: the question is asked again."""


class Suspended(BaseException):
    """Raised to end a run of a handler whose question has no answer yet; it runs again with the answer.

    No `except Exception` catches it, as with a cancellation.
    """


@dataclass(frozen=True, slots=True)
class Question(Generic[Reply]):
    """A question to a client; `mcpfleet.app.question` makes them."""

    method: str
    """The method of the request that carries it, such as `elicitation/create`."""
    params: dict[str, Any]
    needs: str
    """The capability that it needs, as `asks` names it."""
    read: Callable[[Any], Reply]
    """Makes the handler's value of a raw answer; raises Unusable, or Declined if the user declined."""
    key: str | None = None
    """Names it over all runs of the handler; by default its method and order do."""


def undeclared(needed: str) -> str:
    """Return the sentences about a question that a declaration names neither in `asks` nor in `may_ask`."""
    return (
        f"the handler asks the client, which its own code does not show: add asks={{{needed}}}, or may_ask, to its "
        "declaration. It runs again from its top with each answer, so put effects before the question into ctx.step"
    )


class Asker(Protocol):
    """Asks the client of one call, and remembers work before a question."""

    def can_ask(self, name: str) -> bool:
        """Return whether the declaration names it and the client can answer it."""

    async def ask(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Answer all of these, in this order.

        Raises:
            Declined: the user declined one.
            ClientLacks: the client cannot answer one.
            AskError: the declaration does not name one, or a key names two questions.
        """

    @property
    def is_sure(self) -> bool:
        """Whether effects may begin at once."""

    async def make_sure(self) -> None:
        """Return once effects may begin; suspend a run that may not begin them any more."""

    async def once(self, name: str, arguments: bytes, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do work whose result, any JSON value, is remembered by its name and arguments.

        If an earlier run has done it, return its result, and do nothing.
        """


class Unleased:
    """The lease of a call, which its worker keeps to its end: nobody can take it away."""

    @property
    def is_sure(self) -> bool:
        """They may begin."""
        return True

    async def make_sure(self) -> None:
        """Return at once."""


class Nobody(Unleased):
    """Asks nobody: for a handler that declares no questions."""

    def can_ask(self, name: str) -> bool:  # noqa: ARG002  # the protocol's form
        """Return False."""
        return False

    async def ask(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Refuse.

        Raises:
            AskError: always.
        """
        needed = ", ".join(sorted({repr(question.needs) for question in questions}))
        raise AskError(undeclared(needed))

    async def once(self, name: str, arguments: bytes, work: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG002
        """Do the work: there is no earlier run."""
        return await work()


NOBODY: Final = Nobody()


class Answers(Unleased):
    """Answers by the questions' keys: `Context(asker=Answers(month=Month(number=8)))`.

    A form is answered by the filled model or a dict, or by "decline" and "cancel". A page to open is answered by None.
    A model's words and the client's roots are answered by the result itself. The client cannot answer a question
    without an answer here.

    Attributes:
        asked: the questions, in their order.
    """

    def __init__(self, **answers: Any) -> None:
        self._answers = answers
        self.asked: list[Question[Any]] = []

    def can_ask(self, name: str) -> bool:  # noqa: ARG002  # the protocol's form
        """Return whether there is any answer."""
        return bool(self._answers)

    async def ask(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Answer all of these.

        Raises:
            Declined: the test declines one.
            ClientLacks: the test has no answer for one.
            Unusable: the answer would be refused.
        """
        self.asked += questions
        return [question.read(self._raw(question)) for question in questions]

    async def once(self, name: str, arguments: bytes, work: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG002
        """Do the work."""
        return await work()

    def _raw(self, question: Question[Any]) -> Any:
        if question.key not in self._answers:
            raise ClientLacks([question.needs])
        answer = self._answers[question.key]
        if question.method != "elicitation/create":
            return answer.model_dump(mode="json", by_alias=True) if isinstance(answer, BaseModel) else answer
        return _user_says(answer)


def _user_says(answer: Mapping[str, Any] | Literal["decline", "cancel"] | object) -> dict[str, Any]:
    if answer in ("decline", "cancel"):
        return {"action": answer}
    if answer is None:
        return {"action": "accept"}
    return {"action": "accept", "content": to_jsonable_python(answer)}
