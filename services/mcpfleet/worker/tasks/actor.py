"""The worker's side of durable tasks on the bus: claims, keeps leases, hears cancels, writes ends, gives back.

It lives on the bus's loop, and handlers run elsewhere: they take orders, and are heard by `hear`. Whether a task is
still this worker's is the service's word alone, by the fence of each write: a lease that could not be renewed for a
while may still be ours, since none is handed out while the service itself was away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus, Subscription
from mcpfleet.bus.errors import BusError, Failed, Fault
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.pool_tasks import (
    Ask,
    Claimed,
    Defer,
    Deferred,
    PoolTasksClient,
    QuestionsAsked,
    Remember,
    Settle,
    Step,
    Stepped,
    TaskQuestion,
    notify_subject,
    work_subject,
)
from mcpfleet.contracts.task_payloads import Origin
from mcpfleet.contracts.tasks import KeyOutcome, NewTask, Reservation
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.worker.calls.actor import CallActor
from mcpfleet.worker.calls.table import Held, Key
from mcpfleet.worker.frames import Ended, Frame, Report
from mcpfleet.worker.progress_rate import ProgressRate
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.tasks.claimer import Claimer
from mcpfleet.worker.tasks.completion import Release, following
from mcpfleet.worker.tasks.finishing import CompletionWriter
from mcpfleet.worker.tasks.holdings import Holding, Holdings, elapsed, holding_key
from mcpfleet.worker.tasks.lease_renewal import LeaseRenewal
from mcpfleet.worker.tasks.retry import LONGEST_PAUSE, Lost, insist, is_decision, is_too_large, pauses
from mcpfleet.worker.tasks.side import HeldTask
from mcpfleet.worker.tasks.tool_report import ToolReport

_GROUP: Final = "workers"


class TaskActor:
    """Holds tasks."""

    def __init__(
        self,
        bus: Bus,
        pool: str,
        settings: WorkerSettings,
        *,
        calls: CallActor,
        order: Callable[[Held | Key], None],
        log: FilteringBoundLogger,
    ) -> None:
        """Describe the worker.

        Args:
            bus: the worker's bus.
            pool: whose tasks it takes.
            settings: slots, intervals and bounds.
            calls: whose slots tasks take.
            order: tells the handlers' side to run a task, or to cancel the run of this name.
            log: for what an operator should know.
        """
        self._bus = bus
        self._pool = pool
        self._settings = settings
        self._calls = calls
        self._order = order
        self._log = log
        self._client = PoolTasksClient(bus, pool)
        self._held = Holdings()
        self._extending = LeaseRenewal(self._client, bus.process, self._held, settings, hear=self, log=log)
        self._finishing = CompletionWriter(self._client, settings, log)
        self._looking = Claimer(
            self._client, bus.process, settings,
            take=self._take, room=self._room, held=self._held.__len__, log=log,
        )  # fmt: skip
        self._looking.on_unheard = self._extending.note_unheard
        self._serving = ToolReport(self._client, bus.process, settings.task_serves, log)
        self._work: Subscription | None = None
        self._is_leaving = False
        self._idle = anyio.Event()
        self._tasks: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Claim and keep tasks, until cancelled."""
        await self._bus.subscribe(notify_subject(self._pool, self._bus.process), self._on_nudge)
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self._tasks.start_soon(self._looking.run)
            self._tasks.start_soon(self._extending.run)
            self._tasks.start_soon(self._serving.run)
            task_status.started()
            try:
                await anyio.sleep_forever()
            finally:
                self._tasks = None  # what the handlers' side says from now on, nobody writes

    async def offer(self, tools: Mapping[str, str]) -> None:
        """Take tasks of these tools, by their names and definitions, and of no others."""
        self._looking.definitions = tuple(sorted(tools.values()))
        self._serving.offer(tools)
        if self._looking.definitions and self._work is None and not self._is_leaving:
            self._work = await self._bus.subscribe(work_subject(self._pool), self._on_work, _GROUP)
        self._looking.look()

    def held_definitions(self) -> set[str]:
        """The definitions whose tasks are held."""
        return {each.definition for each in self._held}

    async def drain(self) -> None:
        """Take no more tasks, end the runs of those that are held, and give them back."""
        self._is_leaving = True
        self._serving.offer({})
        if self._work is not None:
            await self._bus.leave(self._work)
        for holding in self._held:
            if not holding.has_returned:
                holding.is_stopped = True
                self._stop(holding)
        with anyio.move_on_after(self._settings.task_leaves):
            while len(self._held):
                self._idle = anyio.Event()
                await self._idle.wait()
        # A handler that does not return ends with this process: another worker may go on sooner than by the lease.
        for holding in self._held:
            if not holding.has_returned and not holding.is_lost:
                holding.deciding += 1
                await self._finish(holding, Release())
        # An end that is there is waited for as long as this process may drain.
        while any(holding.has_returned for holding in self._held):
            self._idle = anyio.Event()
            await self._idle.wait()

    # -- what arrives -------------------------------------------------------------------------------------------------

    def _on_work(self, message: Incoming) -> None:
        del message
        self._looking.look()

    def _on_nudge(self, message: Incoming) -> None:
        del message
        self._extending.extend_now()

    def _room(self, *, waits_alone: bool) -> int:
        if self._is_leaving or self._calls.is_blocked:
            return 0
        return self._held.room(free=self._calls.free_slots, most=self._settings.task_slots, waits_alone=waits_alone)

    def _take(self, claimed: Claimed, asked: float, lease: float) -> None:
        """Run a task that was claimed."""
        trace = Origin.trace_of(claimed.origin)
        holding = Holding(claimed.id, claimed.fence, claimed.definition, asked, lease, trace, alone=claimed.alone)
        self._hold(holding)
        if self._is_leaving or claimed.definition not in self._looking.definitions:
            holding.has_returned = True
            self._end(holding, Release())
            return
        self._calls.occupy()
        self._order(_to_run(claimed, work_subject(self._pool)))

    def _hold(self, holding: Holding) -> None:
        """Hold a task, and have its lease renewed from now on."""
        self._held.add(holding)
        self._extending.say()

    # -- what `extend` brings -----------------------------------------------------------------------------------------

    def lose(self, holding: Holding, why: str) -> None:
        """Stop a task that is no longer ours, and write nothing more for it."""
        if holding.is_lost:
            return
        self._log.warning("a task is lost", task=holding.id, why=why)
        holding.is_lost = True
        self._stop(holding)

    def cancel(self, holding: Holding) -> None:
        """End a task's run, since its client wants that."""
        if not holding.is_cancelled:
            holding.is_cancelled = True
            self._stop(holding)

    def _stop(self, holding: Holding) -> None:
        if not holding.has_returned:
            self._order(holding.key)

    # -- what the handlers' side says ---------------------------------------------------------------------------------

    def hear(self, frame: Frame) -> None:
        """Hear of a task what its handler's side says."""
        holding = self._held.get(frame.key)
        if isinstance(frame, Ended):
            if holding is None or not holding.has_returned:
                self._calls.vacate()
                self._looking.freed()
            if holding is not None:
                holding.has_returned = True
                self._end(holding, following(holding, frame))
        elif isinstance(frame, Report) and holding is not None:
            holding.say(frame.body.decode(), frame.reached)
            self._extending.say()

    def _end(self, holding: Holding, then: Settle | Release | None) -> None:
        if then is None or self._tasks is None:
            self._drop(holding)
        else:
            holding.deciding += 1  # here, since a refused renewal may arrive before the task begins
            self._tasks.start_soon(self._finish, holding, then)

    async def _finish(self, holding: Holding, then: Settle | Release) -> None:
        """Write a task's end, or give it back, however long that takes while it is ours."""
        try:
            await self._finishing.finish(holding, then)
        finally:
            self._drop(holding)

    def _drop(self, holding: Holding) -> None:
        self._held.drop(holding)
        self._looking.freed()
        self._idle.set()

    # -- errands of the handlers' side --------------------------------------------------------------------------------

    def is_sure(self, key: Key) -> bool:
        """Whether a task's lease was confirmed lately; on any thread."""
        holding = self._held.get(key)
        return holding is not None and holding.is_sure

    async def confirm(self, key: Key) -> bool:
        """Ask whether a task is still ours."""
        holding = self._held.get(key)
        return holding is not None and await self._extending.confirm(holding)

    async def step(self, key: Key, step: str, name: str, result: str) -> Stepped:
        """Remember a step."""
        holding = self._held.get(key)
        if holding is None or holding.is_lost:
            return Stepped(lost=True)
        message = Step(id=holding.id, fence=holding.fence, key=step, name=name, result=result)
        try:
            kept = await insist(holding, lambda: self._client.step(message), self._log)
        except Lost:
            return Stepped(lost=True)
        if kept.lost and not kept.ended:
            self.lose(holding, "a step was refused")
        return kept

    async def ask(self, key: Key, questions: tuple[TaskQuestion, ...]) -> QuestionsAsked:
        """Ask the task's client; with an answer missing the task is no longer ours."""
        holding = self._held.get(key)
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
            asked = await insist(holding, lambda: self._client.ask(message), self._log)
        except Lost:
            return QuestionsAsked(lost=True)
        finally:
            holding.deciding -= 1
            if holding.is_refused and not holding.is_deciding:
                self.lose(holding, "its lease was not renewed")
        if asked.lost and not asked.ended:
            self.lose(holding, "a question was refused")
        elif asked.waiting:
            holding.is_lost = True  # it is nobody's until the answers are there
        return asked

    async def defer(self, held: Held, task: NewTask, once: Reservation | None) -> Key:
        """Make a task of a call that runs, and hold it."""
        asked = elapsed()
        deferred = await self._make(Defer(task=task, process=self._bus.process, once=once), held.deadline)
        if deferred.outcome is not KeyOutcome.NEW:
            raise Failed(Fault.REFUSED, f"the call cannot become a task: its idempotency key is {deferred.outcome}")
        holding = Holding(task.id, deferred.fence, task.definition, asked, deferred.lease, held.trace)
        self._hold(holding)
        # Without its handle nobody could ever read it.
        holding.is_cancelled = not self._calls.hand_over(held, task.id) and once is None
        return holding_key(task.id, deferred.fence)

    async def _make(self, wanted: Defer, deadline: float) -> Deferred:
        """Have a task made; asked again, since one that nobody knows of would run a second time."""
        for pause in pauses():
            try:
                return await self._client.defer(wanted)
            except BusError as error:
                if is_decision(error) or time.monotonic() + pause > deadline:
                    raise
                self._log.warning("deferral not answered", error=str(error))
            await anyio.sleep(pause)
        raise AssertionError("there is always another pause")

    async def remember(self, once: Reservation, result: str, deadline: float) -> bool:
        """Keep a call's first result, before it leaves; false where that was not to be had."""
        wanted = Remember(key=once.key, fence=once.fence, result=result)
        for pause in pauses():
            try:
                return not (await self._client.remember(wanted)).lost
            except BusError as error:
                if is_too_large(error) and wanted.result is not None:
                    wanted = wanted.model_copy(update={"result": None})
                    continue
                self._log.warning("a call's first result was not kept", error=str(error))
            if time.monotonic() + pause > deadline:
                break
            await anyio.sleep(pause)
        return False


def _to_run(claimed: Claimed, subject: str) -> HeldTask:
    now = time.monotonic()
    return HeldTask(
        key=holding_key(claimed.id, claimed.fence),
        definition=claimed.definition,
        subject=subject,
        body=b"",
        # The service ends it at its limit; this is for a worker that hears nothing of that.
        deadline=now + max(0.0, claimed.limit) + LONGEST_PAUSE,
        trace=Origin.trace_of(claimed.origin) or TraceContext.fresh(sampled=False),
        wants_progress=False,
        progress=ProgressRate(1.0, now),
        is_task=True,
        claimed=claimed,
    )
