"""The handlers for workers: the subject names a worker's pool, and it can reach only that pool's tasks."""

from __future__ import annotations

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.actor import Actor, RpcContext
from mcpfleet.contracts import pool_tasks as contract
from mcpfleet.contracts.pool_tasks import (
    Ask,
    ClaimTasks,
    Defer,
    Deferred,
    Extend,
    Extended,
    QuestionsAsked,
    Release,
    Released,
    Remember,
    ResultKept,
    Serve,
    Served,
    Settle,
    Settled,
    Step,
    Stepped,
    TasksClaimed,
)
from mcpfleet.contracts.tasks import KeyOutcome
from mcpfleet.tasks.actor import GROUP
from mcpfleet.tasks.notifications import TaskNotifications
from mcpfleet.tasks.repository import TaskRepository
from mcpfleet.telemetry.instruments import TasksInstruments


class PoolActor:
    """Answers workers."""

    def __init__(
        self,
        repository: TaskRepository,
        notifications: TaskNotifications,
        instruments: TasksInstruments,
        *,
        log: FilteringBoundLogger,
    ) -> None:
        self._repository = repository
        self._log = log
        self._notifications = notifications
        self._instruments = instruments

    async def register(self, actor: Actor) -> None:
        """Answer from now on."""
        await actor.answer(contract.DEFER, self.defer, group=GROUP)
        await actor.answer(contract.CLAIM, self.claim, group=GROUP)
        await actor.answer(contract.EXTEND, self.extend, group=GROUP)
        await actor.answer(contract.STEP, self.step, group=GROUP)
        await actor.answer(contract.ASK, self.ask, group=GROUP)
        await actor.answer(contract.SETTLE, self.settle, group=GROUP)
        await actor.answer(contract.RELEASE, self.release, group=GROUP)
        await actor.answer(contract.REMEMBER, self.remember, group=GROUP)
        await actor.answer(contract.SERVE, self.serve, group=GROUP)

    async def defer(self, question: Defer, context: RpcContext) -> Deferred:
        """Create a task that its creator holds."""
        deferred = await self._repository.creator.defer(context.tokens["pool"], question)
        if deferred.outcome is KeyOutcome.NEW:
            self._notifications.tell_made(question.task.id, "deferred")
            if question.once is not None:
                self._notifications.tell_reservation(question.once.key)
        return deferred

    async def claim(self, question: ClaimTasks, context: RpcContext) -> TasksClaimed:
        """Give tasks to a worker."""
        claimed = await self._repository.claims.claim(context.tokens["pool"], question)
        if claimed.tasks:
            self._instruments.claimed.add(len(claimed.tasks))
        return claimed

    async def extend(self, question: Extend, context: RpcContext) -> Extended:
        """Renew a worker's leases."""
        extended, changes = await self._repository.claims.extend(context.tokens["pool"], question)
        self._notifications.tell(changes)
        if extended.lost:
            self._instruments.refused.add(len(extended.lost))
        return extended

    async def step(self, question: Step, context: RpcContext) -> Stepped:
        """Store a step's result."""
        stepped = await self._repository.steps.remember(context.tokens["pool"], question)
        self._instruments.refused.add(stepped.lost and not stepped.ended)
        return stepped

    async def ask(self, question: Ask, context: RpcContext) -> QuestionsAsked:
        """Ask a task's client."""
        answer, changes = await self._repository.inputs.ask(context.tokens["pool"], question)
        self._notifications.tell(changes)
        self._instruments.refused.add(answer.lost and not answer.ended)
        return answer

    async def settle(self, question: Settle, context: RpcContext) -> Settled:
        """End a task."""
        settled, changes = await self._repository.completer.settle(context.tokens["pool"], question)
        self._notifications.tell(changes)
        self._instruments.refused.add(int(settled.lost))
        return settled

    async def release(self, question: Release, context: RpcContext) -> Released:
        """Take a task back."""
        if question.failed is not None:
            self._repository.completer.check(question.failed)
        released, changes = await self._repository.claims.release(context.tokens["pool"], question)
        self._notifications.tell(changes)
        self._instruments.refused.add(int(released.lost))
        return released

    async def remember(self, question: Remember, context: RpcContext) -> ResultKept:
        """Store a call's first result."""
        is_kept = await self._repository.keys.remember(context.tokens["pool"], question)
        if is_kept:
            self._notifications.tell_reservation(question.key)
        return ResultKept(lost=not is_kept)

    async def serve(self, question: Serve, context: RpcContext) -> Served:
        """Take a worker's tool report."""
        answer, changes = await self._repository.tool_reports.serve(context.tokens["pool"], question)
        if changes:
            self._log.warning("tasks moved to another version", tasks=len(changes))
        self._notifications.tell(changes)
        return answer
