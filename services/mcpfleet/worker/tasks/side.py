"""What a task's run asks of the tasks service, from the handlers' side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from mcpfleet.contracts.pool_tasks import Claimed, QuestionsAsked, Stepped, TaskQuestion
from mcpfleet.contracts.tasks import NewTask, Reservation
from mcpfleet.worker.calls.table import Held, Key

if TYPE_CHECKING:
    from mcpfleet.worker.tasks.actor import TaskActor
    from mcpfleet.worker.tasks.errands import Errands


class TaskSide(Protocol):
    """Asks for a task that is named by its key. What is lost answers `lost`, and its run is cancelled besides."""

    def is_sure(self, key: Key) -> bool:
        """Whether the task's lease was confirmed lately enough to begin something; on any thread, and at no cost."""

    async def confirm(self, key: Key) -> bool:
        """Ask whether the task is still held, until there is an answer."""

    async def step(self, key: Key, step: str, name: str, result: str) -> Stepped:
        """Remember a step."""

    async def ask(self, key: Key, questions: tuple[TaskQuestion, ...]) -> QuestionsAsked:
        """Ask the task's client; where an answer is missing, the task is no longer held."""

    async def defer(self, held: Held, task: NewTask, once: Reservation | None) -> Key:
        """Make a task of a call that runs, and hold it; returns its key."""

    async def remember(self, once: Reservation, result: str, deadline: float) -> bool:
        """Keep a call's first result; false where nobody can tell its repeats of it (D9)."""


class AcrossLoops:
    """Has the bus's side do it."""

    def __init__(self, errands: Errands, actor: TaskActor) -> None:
        self._errands = errands
        self._actor = actor

    def is_sure(self, key: Key) -> bool:
        """Whether the task's lease was confirmed lately."""
        return self._actor.is_sure(key)

    async def confirm(self, key: Key) -> bool:
        """Ask whether the task is still held."""
        return await self._errands.do(partial(self._actor.confirm, key))

    async def step(self, key: Key, step: str, name: str, result: str) -> Stepped:
        """Remember a step."""
        return await self._errands.do(partial(self._actor.step, key, step, name, result))

    async def ask(self, key: Key, questions: tuple[TaskQuestion, ...]) -> QuestionsAsked:
        """Ask the task's client."""
        return await self._errands.do(partial(self._actor.ask, key, questions))

    async def defer(self, held: Held, task: NewTask, once: Reservation | None) -> Key:
        """Make a task of a call that runs, and hold it."""
        return await self._errands.do(partial(self._actor.defer, held, task, once))

    async def remember(self, once: Reservation, result: str, deadline: float) -> bool:
        """Keep a call's first result."""
        return await self._errands.do(partial(self._actor.remember, once, result, deadline))


@dataclass(slots=True, eq=False, kw_only=True)
class HeldTask(Held):
    """A task that was claimed, as an order to run it."""

    claimed: Claimed
