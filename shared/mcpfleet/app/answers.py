"""Answers that a test gives beforehand to what a handler will ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from mcpfleet.app.asking import Question, Unleased
from mcpfleet.app.errors import ClientLacks


class Answers(Unleased):
    """Answers by the questions' keys: `Context(asker=Answers(month=Month(number=8)))`.

    A form is answered by the filled model or a dict, or by "decline" and "cancel"; a page to open by None; a model's
    words and the client's roots by the result itself. What has no answer is what the client cannot answer.

    Attributes:
        asked: the questions, in their order.
    """

    def __init__(self, **answers: Any) -> None:
        self._answers = answers
        self.asked: list[Question[Any]] = []

    def can_ask(self, name: str) -> bool:  # noqa: ARG002  # the protocol's form
        """Whether there is any answer."""
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
