"""Runs handlers on a loop of their own: one task for each run, with its deadline, its cancel and its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.app import Answer, Context, Handler, LogMessage, Outcome, Progress
from mcpfleet.app.cancellation import CancelSignal
from mcpfleet.app.client import Client
from mcpfleet.app.input import NOBODY, Asker
from mcpfleet.app.lifespan import NOTHING, LifespanValues
from mcpfleet.app.outcome import Kept
from mcpfleet.bus.actor import consumer_span
from mcpfleet.contracts.call import BAD_ARGUMENTS, FAILED, CallBody, FrameKind
from mcpfleet.contracts.hints import Change
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.task_payloads import Origin
from mcpfleet.contracts.tasks import Reservation
from mcpfleet.process.events import RequestBegan, RequestEnded, TaskBegan, TaskEnded
from mcpfleet.process.observers import Observers
from mcpfleet.process.task_owner import TaskOwner
from mcpfleet.telemetry import names
from mcpfleet.telemetry.instruments import WorkerInstruments
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.worker.replay import Replay
from mcpfleet.worker.reporters import DroppedLogs, log_reporter, progress_reporter, status_reporter
from mcpfleet.worker.result_encoder import ResultEncoder, RunEnd, localized
from mcpfleet.worker.served import ServedApp
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.tasks.deferral import Deferral
from mcpfleet.worker.tasks.replay import TaskReplay
from mcpfleet.worker.tasks.requests import TaskRequests
from mcpfleet.worker.work import CallKey, CallWork, Frame, Order, Purpose, TaskKey, TaskWork, Work, WorkKey

_TEMPLATE: Final = "pool.{pool}.{definition}.call"
_CALLBACK_THREADS: Final = 4
"""Threads that call `on_cancel` functions."""


class HandlerTable:
    """The handlers that a worker can run, by the digests of their definitions."""

    def __init__(self, app: ServedApp) -> None:
        """Have the handlers that the application declares now."""
        self.app = app
        self._handlers: Mapping[str, Handler] = {}
        self.learn()

    def __getitem__(self, definition: str) -> Handler:
        return self._handlers[definition]

    def get(self, definition: str) -> Handler | None:
        """Return the handler of a definition; None if there is none any more."""
        return self._handlers.get(definition)

    def learn(self) -> Mapping[str, Handler]:
        """Have the handlers that the application declares now, too, and return them; on any thread."""
        handlers = {each.definition.digest: each for each in self.app.handlers}
        self._handlers = {**self._handlers, **handlers}
        return handlers

    def forget_others(self, handlers: Mapping[str, Handler], held: Collection[str]) -> None:
        """Keep these, and those whose work is still held; forget the others. On any thread."""
        self._handlers = {
            digest: each for digest, each in self._handlers.items() if digest in handlers or digest in held
        }


@dataclass(frozen=True, slots=True)
class RunTelemetry:
    """Where runs are recorded: their spans, their durations, and the errors whose text no client may read."""

    tracer: Tracer
    instruments: WorkerInstruments
    log: FilteringBoundLogger
    observers: Observers


@dataclass(slots=True, eq=False)
class _Run:
    """One run of a handler."""

    work: Work
    signal: CancelSignal
    scope: anyio.CancelScope
    is_overdue: bool = False
    replay: Replay | None = None
    """The questions of a handler that declares some, or runs as a task."""
    timer: asyncio.TimerHandle | None = None
    """Ends the handler's time."""
    once: Reservation | None = None
    """The idempotency key under which a call runs."""
    context: Context | None = None
    """The call as its handler sees it; None for a task."""

    @property
    def is_waiting(self) -> bool:
        """Whether a question has no answer."""
        return self.replay is not None and self.replay.is_waiting

    def cancel(self) -> None:
        """Let the handler hear that nobody wants its result: a plain one by its context, another by a cancellation."""
        self.signal.cancel()
        self.scope.cancel()

    def expire(self) -> None:
        """End the handler's time."""
        self.is_overdue = True
        self.cancel()


class Runner:
    """Runs an application's handlers. Its methods are for the handlers' loop; `tell` and `publish` lead out of it."""

    def __init__(
        self,
        handlers: HandlerTable,
        settings: WorkerSettings,
        telemetry: RunTelemetry,
        *,
        tell: Callable[[Frame], None],
        publish: Callable[[Change], None] | None = None,
        requests: TaskRequests | None = None,
        lifespan: LifespanValues = NOTHING,
    ) -> None:
        """Run nothing yet.

        Args:
            handlers: what can be run.
            settings: threads and limits.
            telemetry: where runs are recorded.
            tell: takes a run's frames: reports while it runs, and one end once its handler has returned.
            publish: takes what handlers say has changed.
            requests: asks the tasks service; None in a worker that runs no tasks.
            lifespan: what the application's lifespans yielded, for handlers that take it.
        """
        self._handlers = handlers
        self._interceptors = handlers.app.interceptors
        self._settings = settings
        self._telemetry = telemetry
        self._encoder = ResultEncoder(settings, telemetry.log, handlers.app.clean)
        self._tell = tell
        self._publish = publish
        self._requests = requests
        self._lifespan = lifespan
        self._dropped_logs = DroppedLogs(telemetry.instruments, telemetry.log)
        self._tasks = TaskOwner()
        self._running: dict[WorkKey, _Run] = {}

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the handlers' tasks until cancelled."""
        self._threads = anyio.CapacityLimiter(self._settings.threads)
        with ThreadPoolExecutor(_CALLBACK_THREADS, "cancel-callback") as self._callbacks:
            await self._tasks.run(task_status=task_status)

    def obey(self, order: Order) -> None:
        """Start a run, or cancel the run of this key, which may have ended meanwhile."""
        if not isinstance(order, Work):
            if (run := self._running.get(order)) is not None:
                run.cancel()
        # An order may cross to this loop when nothing starts here any more; its edge hears that the worker left.
        elif self._tasks.is_running:
            # Known from now on: a cancel may be the next order, before the task has begun (K28).
            started = self._running[order.key] = _Run(order, CancelSignal(self._callbacks), anyio.CancelScope())
            self._tasks.start(self._run, started)

    def cancel_all(self) -> None:
        """Let every handler hear that the worker ends; a plain function would never hear it otherwise (P7)."""
        for run in list(self._running.values()):
            run.cancel()

    async def _run(self, run: _Run) -> None:
        started, work = time.monotonic(), run.work
        handler = self._handlers[work.definition]
        name = handler.definition.name
        end: RunEnd | None = None
        observers = self._telemetry.observers
        if observers.is_on:
            _tell_began(observers, work, handler.definition)
        try:
            # A task runs in its call's trace, and perhaps hours after that call has ended: the link says so.
            links = (work.trace,) if isinstance(work, TaskWork) else ()
            tracer = self._telemetry.tracer
            with consumer_span(tracer, _TEMPLATE, work.subject, work.trace, links) as span, span.activate():
                span.set(names.GEN_AI_TOOL_NAME, name)
                span.set(names.MESSAGING_CONVERSATION_ID, work.key.conversation)
                end = await self._execute(handler, run)
                if run.once is not None:
                    end = await self._remembered(handler, run, run.once, end)
                if end.error_type:
                    span.fail(end.error_type)
        finally:
            del self._running[run.work.key]
            with anyio.CancelScope(shield=True):
                await run.signal.finished()
            end = end or self._encoder.given_up(run.work, handler)
            self._tell(end.frame)
            if observers.is_on:
                _tell_ended(observers, run.work, handler.definition, end.error_type, time.monotonic() - started)
            if work.purpose is Purpose.RESULT:
                self._telemetry.instruments.handler_duration.record(time.monotonic() - started, name, end.error_type)

    async def _remembered(self, handler: Handler, run: _Run, once: Reservation, end: RunEnd) -> RunEnd:
        """Have a call's first result kept before it leaves (D9). If it cannot be kept, its caller is told.

        A failure of a handler that has not begun is not kept: its key stays free (D19).
        """
        frame = end.frame
        if frame.header in (FAILED, BAD_ARGUMENTS) and run.context is not None and not run.context.has_begun:
            return self._encoder.not_begun(end)
        if frame.kind is not FrameKind.RESULT or not frame.body or self._requests is None:
            return end
        if await self._requests.remember(once, frame.body.decode(), run.work.deadline):
            return end
        return self._encoder.not_kept(run.work, handler)

    async def _execute(self, handler: Handler, run: _Run) -> RunEnd:
        """Run the handler within its time; there is an end in any case."""
        work = run.work
        if run.signal:  # cancelled before it began: nobody wants it
            return self._encoder.cancelled(work)
        now = time.monotonic()
        seconds = work.deadline - now
        if isinstance(work, CallWork):
            seconds = min(seconds, handler.definition.timeout)
        if seconds <= 0:
            return self._encoder.not_run(work, handler)
        run.timer = asyncio.get_running_loop().call_later(seconds, run.expire)
        end: RunEnd | None = None
        try:
            with run.scope:
                try:
                    answer = await self._answer(handler, run, now + seconds)
                    end = self._encoder.returned(run.work, handler, answer)
                except BaseException as error:
                    # A cancellation of ours goes through. The handler's own is a mistake. So is `sys.exit`, and an
                    # error of its clean-up. None of them may end the other runs.
                    task = asyncio.current_task()
                    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                        raise
                    # A plain function hears of ours first: the loop waits for the function's thread.
                    is_ours = isinstance(error, asyncio.CancelledError) and run.scope.cancel_called
                    if not is_ours and not run.is_waiting:
                        end = self._encoder.raised(run.work, handler, error)
                        if run.context is not None and run.context.has_translated:
                            end = localized(end, error)
                # A question that has no answer ends the run, whatever the handler made of that.
                if run.replay is not None and run.is_waiting:
                    end = self._encoder.asks(run.work, handler, run.replay)
        finally:
            run.timer.cancel()
        if run.is_overdue:
            return self._encoder.overdue(run.work, handler, seconds)
        return end or self._encoder.cancelled(run.work)

    async def _answer(self, handler: Handler, run: _Run, limit: float) -> Answer | Outcome | Kept:
        """Call the handler for a call, for a reader of a kept result, or for an attempt of a task."""
        work = run.work
        if isinstance(work, CallWork):
            call = CallBody.read(work.body)
            if work.purpose is Purpose.SANITIZE:
                return await self._show(handler, call, run, limit)
            context = self._call_context(handler, run, work, call, limit)
        else:
            assert isinstance(work, TaskWork)
            call, context = await self._attempt(handler, run, work, limit)
        with self._telemetry.tracer.carrying(call.baggage) if call.baggage else nullcontext():
            return await handler.answer(call, context, threads=self._threads, interceptors=self._interceptors)

    async def _show(self, handler: Handler, call: CallBody, run: _Run, limit: float) -> Answer | Outcome:
        """Clear a task's result for one reader."""
        client = Client(call.client, call.capabilities)
        texts = self._handlers.app.texts(call.language)
        context = Context(principal=call.principal, client=client, deadline=limit, cancelled=run.signal, texts=texts)
        return await handler.sanitize_kept(call.showing or "", context)

    def _call_context(self, handler: Handler, run: _Run, work: CallWork, call: CallBody, limit: float) -> Context:
        """The context of a call."""
        run.once = call.once
        texts = self._handlers.app.texts(call.language)
        asker: Asker = NOBODY
        defer: Deferral | None = None
        if (handler.questions or handler.definition.task is not None) and call.completing is None:
            asker = run.replay = Replay(handler.questions, call, texts)
            if handler.definition.task is not None:
                defer = self._deferral(handler, run, work, call, run.replay)
        settings = self._settings
        context = run.context = Context(
            principal=call.principal,
            client=Client(call.client, call.capabilities),
            deadline=limit,
            cancelled=run.signal,
            report=progress_reporter(work.key, self._tell, settings) if work.wants_progress else None,
            asker=asker,
            log=self._log_reporter(work.key, call.log_level),
            threads=self._threads,
            publish=self._publish,
            defer=defer,
            lifespan=self._lifespan,
            texts=texts,
        )
        return context

    def _log_reporter(self, key: CallKey, least: str | None) -> Callable[[LogMessage], None] | None:
        """Return what takes a call's log messages; None where its client wants none."""
        if not self._handlers.app.logs:
            return self._dropped_logs.drop
        return log_reporter(key, least, self._tell, self._settings) if least else None

    def _deferral(self, handler: Handler, run: _Run, work: CallWork, call: CallBody, replay: Replay) -> Deferral:
        def become(key: TaskKey, asker: TaskReplay) -> Callable[[Progress], None]:
            """Go on as the task, without the call's deadline; its first result is the task's end."""
            if run.timer is not None:
                run.timer.cancel()
            del self._running[work.key]
            run.work = TaskWork(
                key=key, definition=work.definition, subject=work.subject, deadline=work.deadline, trace=work.trace
            )
            run.replay, run.once = asker, None
            self._running[key] = run
            return status_reporter(key, self._tell)

        return Deferral(work, call, handler.definition, replay, self._requests, become)

    async def _attempt(self, handler: Handler, run: _Run, work: TaskWork, limit: float) -> tuple[CallBody, Context]:
        """The call that a task was made of, and the context of this attempt, which begins at the handler's top."""
        assert work.claimed is not None
        assert self._requests is not None
        call = Origin.read(work.claimed.origin).call
        texts = self._handlers.app.texts(call.language)
        run.replay = TaskReplay(work.key, self._requests, Replay(handler.questions, call, texts), work.claimed)
        await run.replay.make_sure()  # the claim may be older than its lease by now
        context = Context(
            principal=call.principal,
            client=Client(call.client, call.capabilities),
            deadline=limit,
            cancelled=run.signal,
            report=status_reporter(work.key, self._tell),
            asker=run.replay,
            threads=self._threads,
            publish=self._publish,
            log=None if self._handlers.app.logs else self._dropped_logs.drop,
            is_task=True,
            lifespan=self._lifespan,
            texts=texts,
        )
        return call, context


def _tell_began(observers: Observers, work: Work, definition: Definition) -> None:
    """Tell observers of a call, or of an attempt of a task."""
    if isinstance(work, TaskWork):
        observers.tell(TaskBegan, work.key.task, definition.name)
    else:
        observers.tell(RequestBegan, definition.kind, definition.name, work.trace.trace_id)


def _tell_ended(observers: Observers, work: Work, definition: Definition, error: str, seconds: float) -> None:
    """Tell observers that a run has ended; a call that became a task ends as that task's attempt."""
    if isinstance(work, TaskWork):
        observers.tell(TaskEnded, work.key.task, definition.name, error or "ok")
    else:
        trace = work.trace.trace_id
        observers.tell(RequestEnded, definition.kind, definition.name, trace, error or None, seconds)
