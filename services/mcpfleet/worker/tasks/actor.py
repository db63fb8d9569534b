"""The actor of durable tasks, on the bus's loop: it claims tasks, has their handlers run, and writes their ends.

Only the service's word, by the fence of each write, says whether a task is still this worker's. A lease that could not
be renewed for a while may still be ours. No lease is handed out while the service itself is away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

import anyio
from anyio.abc import TaskStatus

from mcpfleet.bus.bus import Subscription
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.pool_tasks import Claimed, PoolTasksClient, notify_subject, work_subject
from mcpfleet.contracts.task_payloads import Origin
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.process.task_owner import TaskOwner
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.worker.bus_side import BusSide
from mcpfleet.worker.calls.actor import CallActor
from mcpfleet.worker.slots import Slots
from mcpfleet.worker.tasks.claimer import Claimer
from mcpfleet.worker.tasks.holdings import Holding, Holdings
from mcpfleet.worker.tasks.lease_renewal import LeaseRenewal
from mcpfleet.worker.tasks.requests import TaskRequests
from mcpfleet.worker.tasks.service_retry import LONGEST_PAUSE
from mcpfleet.worker.tasks.task_end import HolderWrite, TaskEndWriter, given_back, write_of
from mcpfleet.worker.tasks.tool_report import ToolReport
from mcpfleet.worker.work import Ended, Order, StatusReport, TaskKey, TaskWork

_GROUP: Final = "workers"


class TaskActor:
    """Holds tasks. Their handlers run on another loop, which takes orders and answers with frames."""

    def __init__(self, side: BusSide, slots: Slots, calls: CallActor, order: Callable[[Order], None]) -> None:
        """Take no task yet.

        Args:
            side: the worker on its bus.
            slots: the worker's.
            calls: holds the calls that become tasks.
            order: tells the handlers' loop to run a task, or to cancel its run.
        """
        self._bus = side.bus
        self._pool = side.pool
        self._settings = side.settings
        self._slots = slots
        self._order = order
        self._subject = work_subject(side.pool)
        client, process, settings, log = PoolTasksClient(side.bus, side.pool), side.process, side.settings, side.log
        self._holdings = Holdings(order, log)
        self._renewal = LeaseRenewal(client, process, self._holdings, settings, log)
        self._claimer = Claimer(client, process, settings, self, log)
        self._tool_report = ToolReport(client, process, settings.task_serves, log)
        self._writer = TaskEndWriter(client, settings, log)
        self._tasks = TaskOwner()
        self.requests = TaskRequests(side, client, self._renewal, calls, self._tasks)
        """For handlers: they ask the service about the tasks held here."""
        self._work: Subscription | None = None
        self._is_leaving = False
        self.released = 0
        """Tasks that were held when this worker left, and are not any more."""
        self._idle = AutoResetEvent()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Claim and keep tasks, until cancelled."""
        await self._bus.subscribe(notify_subject(self._pool, self._bus.process), self._on_notify)
        async with anyio.create_task_group() as loops:
            await loops.start(self._tasks.run)
            loops.start_soon(self._claimer.run)
            loops.start_soon(self._renewal.run)
            loops.start_soon(self._tool_report.run)
            task_status.started()

    async def offer(self, tools: Mapping[str, str]) -> None:
        """Take tasks of these tools, by their names and definitions, and of no others."""
        self._claimer.definitions = tuple(sorted(tools.values()))
        self._tool_report.offer(tools)
        if self._claimer.definitions and self._work is None and not self._is_leaving:
            self._work = await self._bus.subscribe(self._subject, self._on_work, _GROUP)
        self._claimer.look()

    def held_definitions(self) -> set[str]:
        """The definitions whose tasks are held."""
        return {each.definition for each in self._holdings}

    async def drain(self) -> None:
        """Take no more tasks, end the runs of those that are held, and give them back."""
        self._is_leaving = True
        self._tool_report.offer({})
        if self._work is not None:
            await self._bus.leave(self._work)
        for holding in self._holdings:
            if not holding.has_returned:
                holding.is_stopped = True
                self._holdings.stop(holding)
        with anyio.move_on_after(self._settings.task_leaves):
            while len(self._holdings):
                await self._idle.wait()
        # A handler that does not return ends with this process: another worker may go on sooner than by the lease.
        for holding in self._holdings:
            if not holding.has_returned and not holding.is_lost:
                holding.deciding += 1
                await self._complete(holding, given_back(holding))
        # A known end is waited for as long as this process may drain.
        while any(holding.has_returned for holding in self._holdings):
            await self._idle.wait()

    def _on_work(self, message: Incoming) -> None:
        del message
        self._claimer.look()

    def _on_notify(self, message: Incoming) -> None:
        del message
        self._renewal.renew_now()

    # -- claims -------------------------------------------------------------------------------------------------------

    def count_claimable(self, *, waits_alone: bool) -> int:
        """How many tasks may be claimed now."""
        if self._is_leaving or self._slots.is_blocked:
            return 0
        return self._holdings.count_claimable(
            free=self._slots.free, most=self._settings.task_slots, waits_alone=waits_alone
        )

    def held(self) -> list[tuple[str, float]]:
        """Return the definitions of the tasks that are held, and since when."""
        return [(each.definition, each.held_since) for each in self._holdings]

    def count_held(self) -> int:
        """How many tasks are held."""
        return len(self._holdings)

    def note_unheard(self, claim: str) -> None:
        """Have the next renewal name a claim whose answer did not come."""
        self._renewal.note_unheard(claim)

    def take(self, claimed: Claimed, asked: float, lease: float) -> None:
        """Run a task that was claimed."""
        trace = Origin.trace_of(claimed.origin)
        holding = Holding(claimed.id, claimed.fence, claimed.definition, asked, lease, trace, alone=claimed.alone)
        self._renewal.hold(holding)
        if self._is_leaving or claimed.definition not in self._claimer.definitions:
            holding.has_returned = True
            self._start_completion(holding, given_back(holding))
            return
        self._slots.take()
        work = TaskWork(
            key=holding.key,
            definition=claimed.definition,
            subject=self._subject,
            # The service ends it at its limit; this is for a worker that does not hear of that.
            deadline=time.monotonic() + max(0.0, claimed.limit) + LONGEST_PAUSE,
            trace=trace or TraceContext.fresh(sampled=False),
            claimed=claimed,
        )
        self._order(work)

    # -- frames of handlers -------------------------------------------------------------------------------------------

    def report(self, report: StatusReport) -> None:
        """Keep a task's status message for the next renewal."""
        holding = self._holdings.get(report.key)
        if holding is not None:
            holding.report(report.message, report.progress)
            self._renewal.notify()

    def end(self, key: TaskKey, ended: Ended) -> None:
        """Free the slot of a task whose handler has returned, and write the task's end."""
        holding = self._holdings.get(key)
        if holding is None or not holding.has_returned:
            self._slots.give_back()
            self._claimer.slot_freed()
        if holding is not None:
            holding.has_returned = True
            self._start_completion(holding, write_of(holding, ended))

    def _start_completion(self, holding: Holding, completion: HolderWrite | None) -> None:
        if completion is not None:
            holding.deciding += 1  # here, since a refused renewal may arrive before the task begins
            if self._tasks.start(self._complete, holding, completion):
                return
        self._drop(holding)

    async def _complete(self, holding: Holding, completion: HolderWrite) -> None:
        """Write a task's end, or give it back, however long that takes while it is ours."""
        try:
            await self._writer.write(holding, completion)
        finally:
            self._drop(holding)

    def _drop(self, holding: Holding) -> None:
        if self._is_leaving and not holding.is_lost:
            self.released += 1
        self._holdings.drop(holding)
        if not len(self._holdings):
            self._claimer.emptied()
        self._idle.set()
