"""Requests of running handlers to the tasks service: steps, questions, deferrals, first results."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio

from mcpfleet.bus.errors import BusError, Failed, Fault
from mcpfleet.contracts.pool_tasks import (
    Ask,
    Defer,
    Deferred,
    PoolTasksClient,
    QuestionsAsked,
    Remember,
    Step,
    Stepped,
    TaskQuestion,
)
from mcpfleet.contracts.tasks import KeyOutcome, NewTask, Reservation
from mcpfleet.process.task_owner import TaskOwner
from mcpfleet.worker.bus_side import BusSide
from mcpfleet.worker.calls.actor import CallActor
from mcpfleet.worker.loop_bridge import LoopCalls
from mcpfleet.worker.tasks.holdings import Holding, elapsed
from mcpfleet.worker.tasks.lease_renewal import LeaseRenewal
from mcpfleet.worker.tasks.service_retry import Lost, is_decision, is_too_large, retry, retry_pauses
from mcpfleet.worker.work import CallWork, TaskKey

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _on_bus_loop(
    method: Callable[Concatenate[TaskRequests, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[TaskRequests, Arguments], Coroutine[Any, Any, Result]]:
    """Have a method run on the bus's loop, while its caller awaits it on the handlers' loop."""

    @wraps(method)
    async def across(self: TaskRequests, /, *args: Arguments.args, **named: Arguments.kwargs) -> Result:
        return await self.bus_loop.run(partial(method, self, *args, **named))

    return across


class TaskRequests:
    """Asks the service about tasks that this worker holds. Made on the bus's loop, and called on the handlers' loop.

    An answer that says `lost` means that the task is no longer held: its run is cancelled besides.
    """

    def __init__(
        self, side: BusSide, client: PoolTasksClient, renewal: LeaseRenewal, calls: CallActor, tasks: TaskOwner
    ) -> None:
        """Ask nothing yet.

        Args:
            side: the worker on its bus.
            client: the service's.
            renewal: renews the leases of the held tasks.
            calls: holds the calls that become tasks.
            tasks: owns what runs on the bus's loop.
        """
        self.pool = side.pool
        self.bus_loop = LoopCalls(asyncio.get_running_loop(), tasks)
        self._process = side.process
        self._log = side.log
        self._client = client
        self._renewal = renewal
        self._holdings = renewal.holdings
        self._calls = calls

    def is_sure(self, key: TaskKey) -> bool:
        """Whether a task's lease was confirmed lately enough to begin something."""
        holding = self._holdings.get(key)
        return holding is not None and holding.is_sure

    @_on_bus_loop
    async def confirm(self, key: TaskKey) -> bool:
        """Ask whether a task is still held, until there is an answer."""
        holding = self._holdings.get(key)
        return holding is not None and await self._renewal.confirm(holding)

    @_on_bus_loop
    async def step(self, key: TaskKey, step: str, name: str, result: str) -> Stepped:
        """Remember the result of a step."""
        holding = self._holdings.get(key)
        if holding is None or holding.is_lost:
            return Stepped(lost=True)
        message = Step(id=holding.id, fence=holding.fence, key=step, name=name, result=result)
        try:
            kept = await retry(holding, lambda: self._client.step(message), self._log)
        except Lost:
            return Stepped(lost=True)
        if kept.lost and not kept.ended:
            self._holdings.lose(holding, "a step was refused")
        return kept

    @_on_bus_loop
    async def ask(self, key: TaskKey, questions: tuple[TaskQuestion, ...]) -> QuestionsAsked:
        """Ask the task's client. If an answer is missing, the task is not held any more."""
        holding = self._holdings.get(key)
        if holding is None or holding.is_lost:
            return QuestionsAsked(lost=True)
        message = Ask(
            id=holding.id,
            fence=holding.fence,
            questions=questions,
            message=holding.message,
            progress=holding.progress,
        )
        holding.deciding += 1
        try:
            asked = await retry(holding, lambda: self._client.ask(message), self._log)
        except Lost:
            return QuestionsAsked(lost=True)
        finally:
            holding.deciding -= 1
            if holding.is_refused and not holding.is_deciding:
                self._holdings.lose(holding, "its lease was not renewed")
        if asked.lost and not asked.ended:
            self._holdings.lose(holding, "a question was refused")
        elif asked.waiting:
            holding.is_lost = True  # nobody holds it until the answers are there
        return asked

    @_on_bus_loop
    async def defer(self, call: CallWork, task: NewTask, once: Reservation | None) -> TaskKey:
        """Make a task of a call that runs, and hold it.

        Raises:
            BusError: the service refused, or did not answer in the call's time.
        """
        asked = elapsed()
        deferred = await self._make(Defer(task=task, process=self._process, once=once), call.deadline)
        if deferred.outcome is not KeyOutcome.NEW:
            raise Failed(Fault.REFUSED, f"the call cannot become a task: its idempotency key is {deferred.outcome}")
        holding = Holding(task.id, deferred.fence, task.definition, asked, deferred.lease, call.trace)
        self._renewal.hold(holding)
        # Without its handle nobody could ever read it.
        holding.is_cancelled = not self._calls.hand_over(call.key, task.id) and once is None
        return holding.key

    async def _make(self, wanted: Defer, deadline: float) -> Deferred:
        """Have a task made. Ask again if there is no answer: a task that nobody knows of would run a second time."""
        pauses = retry_pauses()
        while True:
            try:
                return await self._client.defer(wanted)
            except BusError as error:
                pause = next(pauses)
                if is_decision(error) or time.monotonic() + pause > deadline:
                    raise
                self._log.warning("deferral not answered", error=str(error))
            await anyio.sleep(pause)

    @_on_bus_loop
    async def remember(self, once: Reservation, result: str, deadline: float) -> bool:
        """Keep a call's first result before it leaves; False if repeats of the call cannot be told of it (D9)."""
        wanted = Remember(key=once.key, fence=once.fence, result=result)
        for pause in retry_pauses():
            try:
                return not (await self._client.remember(wanted)).lost
            except BusError as error:
                if is_too_large(error) and wanted.result is not None:
                    wanted = wanted.model_copy(update={"result": None})
                    continue
                self._log.warning("first result not kept", error=str(error))
            if time.monotonic() + pause > deadline:
                break
            await anyio.sleep(pause)
        return False
