"""The replay of a task: the tasks service keeps questions and steps, for every attempt on every worker (M69, M70)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from pydantic_core import from_json, to_json

from mcpfleet.app import AskError, Declined, Question, QuestionChanged
from mcpfleet.app.function import running_step
from mcpfleet.app.input import Suspended, Unusable
from mcpfleet.contracts import pool_tasks
from mcpfleet.contracts.manifest import digest_of
from mcpfleet.contracts.pool_tasks import Claimed, step_key
from mcpfleet.contracts.tasks import KEY_LENGTH, MOST_ANSWERS
from mcpfleet.worker import texts
from mcpfleet.worker.replay import Replay
from mcpfleet.worker.tasks.requests import TaskRequests
from mcpfleet.worker.work import TaskKey

_TRIES: Final = 10
"""Times that one question is asked, if its answers are not of the form that the handler reads."""

_Known = dict[str, tuple[str, Any]]


class TaskReplay(Replay):
    """One attempt of a task. Its questions go through the tasks service; one without an answer ends the attempt.

    The answers come by `tasks/update`. The handler then runs again from its top, on any worker that claims the task. A
    call that became a task brings what its rounds knew.
    """

    most = MOST_ANSWERS

    def __init__(self, key: TaskKey, requests: TaskRequests, before: Replay, claimed: Claimed | None = None) -> None:
        """Begin an attempt, or go on with a call's run.

        Args:
            key: names the holding.
            requests: asks the tasks service.
            before: the declaration, the client's capabilities, and what a call knew before it became the task.
            claimed: has what earlier attempts left.
        """
        self._continue(before)
        self._key = key
        self._requests = requests
        self._given: _Known = {}
        """Answers by their keys, with the digests of their questions."""
        self._done: dict[str, str] = {}
        if claimed is not None:
            self._given = {each.key: (each.digest, from_json(each.answer)) for each in claimed.answers}
            self._done = {each.key: each.result for each in claimed.steps}

    @property
    def is_sure(self) -> bool:
        """Whether an effect that begins now begins within the task's lease."""
        return self._requests.is_sure(self._key)

    async def make_sure(self) -> None:
        """Have the lease confirmed: this process may have been stopped for longer than the lease lasts (K26).

        Raises:
            Suspended: another worker has the task by now.
        """
        while not self.is_sure:
            if not await self._requests.confirm(self._key):
                self._suspend({})

    async def ask(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Answer all of these, or end the run.

        Raises:
            Suspended: one has no valid answer yet.
            Declined: the user would not answer one.
            ClientLacks: the client that made the task cannot answer one.
            AskError: the declaration does not name one, or a key names two.
        """
        self._check(questions)
        found: dict[str, Any] = {}
        keyed = [(self._key_of(question), question) for question in questions]
        names = {key: key for key, _ in keyed}
        for _ in range(_TRIES):
            waiting = [
                (key, question)
                for key, question in keyed
                if key not in found and not self._read(key, question, names, found)
            ]
            if not waiting:
                break
            await self._put([(names[key], question) for key, question in waiting])
        else:
            raise AskError("a question's answers were not of the form that the handler reads, too often")
        answers = [found[key] for key, _ in keyed]
        for answer in answers:
            if isinstance(answer, Declined):
                raise answer
        return answers

    async def once(self, name: str, arguments: bytes, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run a step, or return its result of an earlier attempt, found by name, arguments and order among equals."""
        known = self._next_step(name, arguments)
        if known in self._steps:  # by the call, before it became the task
            return self._steps[known]
        ordinal = int(known.rpartition(":")[2]) - 1
        key = step_key(self._key.task, name, digest_of(arguments), ordinal)
        if key in self._done:
            return from_json(self._done[key])
        token = running_step.set(key)
        try:
            value = await work()
        finally:
            running_step.reset(token)
        kept = await self._requests.step(self._key, key, name[:KEY_LENGTH], to_json(value).decode())
        if kept.lost:
            self._suspend({})
        return value if kept.result is None else from_json(kept.result)

    def _read(self, key: str, question: Question[Any], names: dict[str, str], found: dict[str, Any]) -> bool:
        """Read a given answer. If the handler cannot read it, ask for it again under another key (M70)."""
        while True:
            name = names[key]
            if name == key and key in self._known:
                raw = self._known[key]
            elif name in self._given:
                digest, raw = self._given[name]
                if digest != _digest(question):
                    raise _clash(name)
            else:
                return False
            try:
                found[key] = question.read(raw)
            except Unusable:
                number = int(name[len(key) + 1 :] or 1) + 1 if name != key else 2
                names[key] = f"{key}.{number}"
                continue
            except Declined as declined:
                found[key] = declined
            return True

    async def _put(self, waiting: Sequence[tuple[str, Question[Any]]]) -> None:
        asked = tuple(
            pool_tasks.TaskQuestion(
                key=name, digest=_digest(question), request=to_json(self._request(question)).decode()
            )
            for name, question in waiting
        )
        answered = await self._requests.ask(self._key, asked)
        if answered.clash is not None:
            raise _clash(answered.clash)
        self._given |= {each.key: (each.digest, from_json(each.answer)) for each in answered.answers}
        if answered.lost or answered.waiting:
            self._suspend(dict(waiting))

    def _suspend(self, waiting: dict[str, Question[Any]]) -> None:
        self._is_suspended = True
        self._open |= waiting
        raise Suspended


def _digest(question: Question[Any]) -> str:
    """Name a question, whatever the language in which it is shown."""
    return digest_of(to_json({"method": question.method, "params": question.params}))


def _clash(key: str) -> QuestionChanged:
    return QuestionChanged(texts.question_changed(key))
