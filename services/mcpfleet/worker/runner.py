"""Runs handlers, on a loop of their own: one task a call, its deadline, its cancel, and its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.app import Answer, App, Context, Handler, Outcome
from mcpfleet.app.cancellation import CancelSignal
from mcpfleet.app.client import Client
from mcpfleet.app.input import NOBODY, Asker
from mcpfleet.app.outcome import Kept
from mcpfleet.bus.actor import consumer_span
from mcpfleet.contracts.call import CallBody, FrameKind
from mcpfleet.contracts.task_payloads import Origin
from mcpfleet.contracts.tasks import Reservation
from mcpfleet.telemetry import names
from mcpfleet.telemetry.instruments import WorkerInstruments
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.worker.calls.table import Held, Key
from mcpfleet.worker.frames import Frame
from mcpfleet.worker.replay import Replay
from mcpfleet.worker.reporters import logger, reporter
from mcpfleet.worker.result_encoder import ResultEncoder, RunEnd
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.tasks.deferral import Deferral, status_reporter
from mcpfleet.worker.tasks.replay import TaskReplay
from mcpfleet.worker.tasks.side import HeldTask, TaskSide

_TEMPLATE: Final = "pool.{pool}.{definition}.call"
_CALLBACK_THREADS: Final = 4


@dataclass(slots=True, eq=False)
class _Running:
    """A call whose handler runs."""

    signal: CancelSignal
    scope: anyio.CancelScope
    is_overdue: bool = False
    rounds: Replay | None = None
    """The questions of a handler that declares some."""
    timer: asyncio.TimerHandle | None = None
    """Ends the handler's time."""
    once: Reservation | None = None
    """The idempotency key under which it runs."""

    def cancel(self) -> None:
        """Let the handler hear that nobody wants its result: plain ones by their context, others by being cancelled."""
        self.signal.cancel()
        self.scope.cancel()

    def expire(self) -> None:
        """End the handler's time."""
        self.is_overdue = True
        self.cancel()


class Runner:
    """Runs what an application declares. Its methods are for the handlers' loop, and `tell` leads out of it."""

    def __init__(
        self,
        app: App,
        settings: WorkerSettings,
        *,
        tell: Callable[[Frame], None],
        tracer: Tracer,
        instruments: WorkerInstruments,
        log: FilteringBoundLogger,
    ) -> None:
        """Describe the application.

        Args:
            app: whose handlers are run.
            settings: threads and limits.
            tell: hears a call's progress and log, and once its end, when its handler has really returned.
            tracer: the worker's.
            instruments: where durations are counted.
            log: where the errors go whose text no client may read.
        """
        self._handlers: Mapping[str, Handler] = {handler.definition.digest: handler for handler in app.handlers}
        self._interceptors = app.interceptors
        self._settings = settings
        self._tell = tell
        self._tracer = tracer
        self._instruments = instruments
        self._endings = ResultEncoder(settings, log, app.clean)
        self._publish: Callable[[str], None] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._pool = ""
        self._side: TaskSide | None = None
        self._running: dict[Key, _Running] = {}

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the handlers' tasks until cancelled."""
        self._threads = anyio.CapacityLimiter(self._settings.threads)
        with ThreadPoolExecutor(_CALLBACK_THREADS, "cancel-callback") as self._callbacks:
            # asyncio's own group: anyio's costs each call ten microseconds more, and gives nothing here.
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                task_status.started()
                try:
                    await anyio.sleep_forever()
                finally:
                    self._tasks = None

    def on_publish(self, hear: Callable[[str], None]) -> None:
        """Have somebody hear the URIs of resources that handlers say have changed, on the handlers' loop."""
        self._publish = hear

    def serve_tasks(self, pool: str, side: TaskSide) -> None:
        """Run tasks, and let handlers make some; before `run`."""
        self._pool, self._side = pool, side

    def learn(self, handlers: Mapping[str, Handler]) -> None:
        """Run calls of these definitions too; on any thread."""
        self._handlers = {**self._handlers, **handlers}

    def forget_others(self, handlers: Mapping[str, Handler], held: Collection[str]) -> None:
        """Keep of the others only those whose calls are still held; on any thread."""
        self._handlers = {
            digest: each for digest, each in self._handlers.items() if digest in handlers or digest in held
        }

    def obey(self, order: Held | Key) -> None:
        """Run a call in a task of its own, or cancel the one of this name, which may have ended meanwhile."""
        if isinstance(order, Held):
            # An order may cross to this loop when nothing starts here any more; its edge hears that the worker left.
            if self._tasks is not None:
                # Known from now on: a cancel may be the next order, before the task has begun (K28).
                started = self._running[order.key] = _Running(CancelSignal(self._callbacks), anyio.CancelScope())
                self._tasks.create_task(self._run(order, started))
        elif (running := self._running.get(order)) is not None:
            running.cancel()

    def cancel_all(self) -> None:
        """Let every handler hear that the worker ends; a plain function would never hear it otherwise (P7)."""
        for running in list(self._running.values()):
            running.cancel()

    async def _run(self, held: Held, running: _Running) -> None:
        started = time.monotonic()
        handler = self._handlers[held.definition]
        name = handler.definition.name
        ending: RunEnd | None = None
        try:
            # A task runs in its call's trace, and perhaps hours after that call has ended: the link says so.
            links = (held.trace,) if held.is_task else ()
            with consumer_span(self._tracer, _TEMPLATE, held.subject, held.trace, links) as span, span.activate():
                span.set(names.GEN_AI_TOOL_NAME, name)
                span.set(names.MESSAGING_CONVERSATION_ID, held.key.call)
                ending = await self._execute(handler, held, running)
                if running.once is not None and not held.is_task:
                    ending = await self._remembered(handler, held, running.once, ending)
                if ending.error_type:
                    span.fail(ending.error_type)
        finally:
            del self._running[held.key]
            with anyio.CancelScope(shield=True):
                await running.signal.finished()
            ending = ending or self._endings.given_up(held, handler)
            self._tell(ending.frame)
            if not held.shows and not held.outcome_only:
                self._instruments.handler_duration.record(time.monotonic() - started, name, ending.error_type)

    async def _remembered(self, handler: Handler, held: Held, once: Reservation, ending: RunEnd) -> RunEnd:
        """Have a first result kept before it leaves (D9); where it cannot be, its caller is told what that means."""
        frame = ending.frame
        if frame.kind is not FrameKind.RESULT or not frame.body or self._side is None:
            return ending
        if await self._side.remember(once, frame.body.decode(), held.deadline):
            return ending
        return self._endings.not_kept(held, handler)

    async def _execute(self, handler: Handler, held: Held, running: _Running) -> RunEnd:
        """Run the handler within its time; whatever it does, there is an end."""
        if running.signal:  # cancelled before it began: nobody wants it
            return self._endings.cancelled(held)
        now = time.monotonic()
        seconds = held.deadline - now if held.is_task else min(held.deadline - now, handler.definition.timeout)
        if seconds <= 0:
            return self._endings.not_run(held, handler)
        running.timer = asyncio.get_running_loop().call_later(seconds, running.expire)
        ending: RunEnd | None = None
        try:
            with running.scope:
                try:
                    answer = await self._call(handler, held, running, now + seconds)
                    ending = self._endings.returned(held, handler, answer)
                except BaseException as error:
                    # A cancellation of ours goes through. One of the handler's own is a mistake, as `sys.exit` is, or
                    # an error of its clean-up after ours: none of them may end the other calls.
                    task = asyncio.current_task()
                    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                        raise
                    # A plain function hears of ours in its thread, before the loop does, which waits for the thread.
                    is_ours = isinstance(error, asyncio.CancelledError) and running.scope.cancel_called
                    if not is_ours and (running.rounds is None or not running.rounds.is_waiting):
                        ending = self._endings.raised(held, handler, error)
                # A question that has no answer ends the run, whatever the handler made of that.
                if running.rounds is not None and running.rounds.is_waiting:
                    ending = self._endings.asks(held, handler, running.rounds)
        finally:
            running.timer.cancel()
        if running.is_overdue:
            return self._endings.overdue(held, handler, seconds)
        return ending or self._endings.cancelled(held)

    async def _call(self, handler: Handler, held: Held, running: _Running, limit: float) -> Answer | Outcome | Kept:
        if isinstance(held, HeldTask):
            return await self._run_task(handler, held, running, limit)
        call = CallBody.read(held.body)
        if held.shows:
            return await self._show(handler, call, running, limit)
        running.once = call.once
        asker: Asker = NOBODY
        defer: Deferral | None = None
        if (handler.questions or handler.definition.task is not None) and call.completing is None:
            asker = running.rounds = Replay(handler.questions, call.capabilities, call.answers, call.memory)
            if handler.definition.task is not None:
                defer = self._deferral(handler, held, running, call)
        settings = self._settings
        context = Context(
            principal=call.principal,
            client=Client(call.client, call.capabilities),
            deadline=limit,
            cancelled=running.signal,
            report=reporter(held.key, self._tell, settings) if held.wants_progress else None,
            asker=asker,
            log=logger(held.key, call.log_level, self._tell, settings) if call.log_level else None,
            threads=self._threads,
            publish=self._publish,
            defer=defer,
        )
        return await handler.answer(call, context, threads=self._threads, interceptors=self._interceptors)

    @staticmethod
    async def _show(handler: Handler, call: CallBody, running: _Running, limit: float) -> Answer | Outcome:
        """Clear a task's result for one who reads it."""
        client = Client(call.client, call.capabilities)
        context = Context(principal=call.principal, client=client, deadline=limit, cancelled=running.signal)
        return await handler.show(call.showing or "", context)

    def _deferral(self, handler: Handler, held: Held, running: _Running, call: CallBody) -> Deferral:
        rounds = running.rounds
        assert rounds is not None

        def become(key: Key, asker: TaskReplay) -> None:
            """Go by the task's name from now on, without the call's deadline."""
            if running.timer is not None:
                running.timer.cancel()
            del self._running[held.key]
            held.key, held.is_task, running.rounds = key, True, asker
            self._running[key] = running

        return Deferral(held, call, handler.definition, self._pool, rounds, self._side, become, self._tell)

    async def _run_task(
        self, handler: Handler, held: HeldTask, running: _Running, limit: float
    ) -> Answer | Outcome | Kept:
        """Run one attempt of a task from its top."""
        origin = Origin.read(held.claimed.origin)
        call, side = origin.call, self._side
        assert side is not None
        before = Replay(handler.questions, call.capabilities, call.answers, call.memory)
        running.rounds = TaskReplay(held.claimed.id, held.key, side, before, held.claimed)
        await running.rounds.make_sure()  # the claim may be older than its lease by now
        context = Context(
            principal=call.principal,
            client=Client(call.client, call.capabilities),
            deadline=limit,
            cancelled=running.signal,
            report=status_reporter(held.key, self._tell),
            asker=running.rounds,
            threads=self._threads,
            publish=self._publish,
            is_task=True,
        )
        return await handler.answer(call, context, threads=self._threads, interceptors=self._interceptors)
