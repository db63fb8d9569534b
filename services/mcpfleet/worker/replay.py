"""The replay of a handler: a question without an answer ends its run, and it runs again with the answer (M50)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic_core import to_json

from mcpfleet.app import AskError, ClientLacks, Declined, Question
from mcpfleet.app.input import Suspended, Unleased, Unusable, undeclared
from mcpfleet.app.localized import SOURCE, Localizer
from mcpfleet.contracts.call import CallBody
from mcpfleet.contracts.manifest import digest_of
from mcpfleet.wire.protocol import missing

MOST_REMEMBERED: Final = 32 * 1024
"""Bytes of answers and steps that a call takes from one round into the next: a client carries them."""
MOST_QUESTIONS: Final = 32
"""Questions of one round."""

_ABSENT: Final = object()


class Replay(Unleased):
    """One run of a call's handler: the questions that it asks, and what is known from the runs before it."""

    most = MOST_QUESTIONS

    def __init__(self, declared: Iterable[str], call: CallBody, texts: Localizer = SOURCE) -> None:
        """Begin a run.

        Args:
            declared: what the handler may ask.
            call: has the client's capabilities and answers, which nobody has checked (M51), and its memory: what the
                run before this one left. The memory is ours, since it was sealed meanwhile.
            texts: translates what the user reads of questions.
        """
        self._texts = texts
        self._declared = frozenset(declared)
        self._capabilities = call.capabilities
        self._answers: Mapping[str, Any] = call.answers or {}
        memory = call.memory or {}
        self._known: dict[str, Any] = dict(memory.get("answers") or {})
        self._steps: dict[str, Any] = dict(memory.get("steps") or {})
        self._ordinals: Counter[str] = Counter()
        self._keys: set[str] = set()
        self._open: dict[str, Question[Any]] = {}
        self._is_suspended = False

    def _continue(self, before: Replay) -> None:
        """Go on from another replay: its keys stay taken, and its answers and steps stay known."""
        self._declared, self._capabilities, self._answers = before._declared, before._capabilities, {}
        self._texts = before._texts
        self._known, self._steps = before._known, before._steps
        self._ordinals, self._keys, self._open = before._ordinals, before._keys, {}
        self._is_suspended = False

    @property
    def is_waiting(self) -> bool:
        """Whether a question has no answer. Then this run has ended, whatever the handler does."""
        return self._is_suspended

    def can_ask(self, name: str) -> bool:
        """Whether the declaration names it and the client can answer it."""
        return self._is_declared(name) and not missing([name], self._capabilities)

    async def ask(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Answer all of these, or end the run.

        Raises:
            Suspended: one has no valid answer yet.
            Declined: the user would not answer one.
            ClientLacks: the client cannot answer one.
            AskError: the declaration does not name one, a key names two, or too much would be remembered.
        """
        self._check(questions)
        keyed = [(self._key_of(question), question) for question in questions]
        answers = [self._answer(key, question) for key, question in keyed]
        waiting = {key: question for (key, question), answer in zip(keyed, answers, strict=True) if answer is _ABSENT}
        if waiting:
            self._check_size()
            self._open |= waiting
            self._is_suspended = True
            raise Suspended
        for answer in answers:
            if isinstance(answer, Declined):
                raise answer
        return answers

    async def once(self, name: str, arguments: bytes, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run a step, or return its result of an earlier run, found by name, arguments and order among equals."""
        step = self._next_step(name, arguments)
        if step not in self._steps:
            self._steps[step] = await work()
            self._check_size()
        return self._steps[step]

    def frame(self) -> dict[str, Any]:
        """The questions to the client, and the memory for the next run."""
        return {
            "inputRequests": {key: self._request(question) for key, question in self._open.items()},
            "memory": self.memory(),
        }

    def _request(self, question: Question[Any]) -> dict[str, Any]:
        """Return a question as its client reads it."""
        return {"method": question.method, "params": self._texts.question(question.method, question.params)}

    def _next_step(self, name: str, arguments: bytes) -> str:
        """Name a step: the same in every run, as long as equal steps come in the same order."""
        equals = f"{name}:{digest_of(arguments)}"
        self._ordinals[equals] += 1
        return f"{equals}:{self._ordinals[equals]}"

    def memory(self) -> dict[str, Any]:
        """The answers and steps that a later run must know."""
        return {"answers": self._known, "steps": self._steps}

    def _is_declared(self, name: str) -> bool:
        return name in self._declared or any(held.startswith(f"{name}.") for held in self._declared)

    def _check(self, questions: Sequence[Question[Any]]) -> None:
        needed = [question.needs for question in questions]
        if strange := [name for name in needed if not self._is_declared(name)]:
            raise AskError(undeclared(repr(strange[0])))
        if lacking := missing(needed, self._capabilities):
            raise ClientLacks(lacking)
        if len(self._keys) + len(questions) > self.most:
            raise AskError(f"{self.most} questions may be asked at most")

    def _key_of(self, question: Question[Any]) -> str:
        """Name a question: the same in every run, as long as the handler asks in the same order."""
        key = question.key
        if key is None:
            word = question.method.partition("/")[0]
            self._ordinals[f"/{word}"] += 1
            key = f"{word}-{self._ordinals[f'/{word}']}"
        if key in self._keys:
            raise AskError(f"two questions have the key {key!r}")
        self._keys.add(key)
        return key

    def _answer(self, key: str, question: Question[Any]) -> Any:
        """Read a known or a sent answer; an answer of another form than asked for counts as none (M55)."""
        for source in (self._known, self._answers):
            if key not in source:
                continue
            try:
                answer = question.read(source[key])
            except Unusable:
                continue
            except Declined as declined:
                answer = declined
            self._known[key] = source[key]
            return answer
        self._known.pop(key, None)
        return _ABSENT

    def _check_size(self) -> None:
        size = len(to_json(self.memory()))
        if size > MOST_REMEMBERED:
            raise AskError(
                f"the answers and steps of this call have {size} bytes, and a call remembers up to {MOST_REMEMBERED}: "
                "let steps return less, or run it as a task"
            )
