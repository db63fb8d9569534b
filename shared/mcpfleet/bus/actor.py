"""The typed handlers of a service: each question is checked, bounded, handled in one task group, and answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import anyio
from anyio.abc import TaskStatus
from pydantic import BaseModel, ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus import header
from mcpfleet.bus.bus import Bus, Subscription
from mcpfleet.bus.errors import BusError, Failed, Fault
from mcpfleet.bus.port import Incoming
from mcpfleet.bus.rpc import Rpc, broken_rules
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.process.task_owner import TaskOwner
from mcpfleet.telemetry import names
from mcpfleet.telemetry.spans import Span, SpanKind, Tracer
from mcpfleet.telemetry.trace import TraceContext

_LONGEST: Final = 30.0
"""Seconds that a handler may take at most, whatever time its asker claims to have."""
_FOR_THE_ANSWER: Final = 0.05
"""The share of an asker's time that is kept for the answer's way. A busy host takes longer than a hop's margin. An
asker without an answer must tell its client of a doubt (K30)."""

Question = TypeVar("Question", bound=BaseModel)
Answer = TypeVar("Answer", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class RpcContext:
    """The context of a question: everything that a handler gets beside the body."""

    tokens: dict[str, str]
    """The sender and the key, as the subject names them. NATS permits subjects; the body is only a claim."""
    deadline: float
    """Monotonic seconds at which the asker stops waiting."""
    trace: TraceContext


Handler = Callable[[Question, RpcContext], Awaitable[Answer]]


@dataclass(slots=True, eq=False)
class _Answering(Generic[Question, Answer]):
    """One remote procedure that an actor answers."""

    rpc: Rpc[Question, Answer]
    handler: Handler[Question, Answer]
    subscription: Subscription | None = None

    def count(self, seconds: float, *, failed: bool) -> None:
        """Add one question to the statistics of the subject."""
        if self.subscription is not None:
            self.subscription.seconds += seconds
            self.subscription.failed += failed


def is_fresh(sent: header.Sent, settings: ProcessSettings) -> bool:
    """Return whether a request may still start: it is neither older than `start_within` nor dated ahead of our clock.

    A message may wait in a paused process or a full socket until long after its sender reported that it did not run.
    """
    age = header.now() - sent.at
    return -settings.bus_clock_tolerance <= age <= settings.bus_start_within + settings.bus_clock_tolerance


def hint_span(
    tracer: Tracer, template: str, subject: Callable[[], str], cause: TraceContext | None
) -> AbstractContextManager[object]:
    """Return the span of following a hint up, linked to the work that caused it; an empty one where none is recorded.

    Args:
        tracer: the service's.
        template: the hint's subject with the names of its tokens.
        subject: composes the hint's subject, where it is recorded.
        cause: the trace of the change, if its sender recorded one.
    """
    if cause is None or not cause.sampled:
        return nullcontext()
    return consumer_span(tracer, template, subject(), cause, links=[cause])


def consumer_span(
    tracer: Tracer, template: str, subject: str, trace: TraceContext, links: Sequence[TraceContext] = ()
) -> Span:
    """Start the span of handling a message, as a child of the work that sent it.

    Args:
        tracer: the service's.
        template: the subject with the names of its tokens, so that there are few.
        subject: the subject as it came.
        trace: the trace in the header line of the message.
        links: further work that took part in it.
    """
    return tracer.start(
        names.span_name("process", template),
        SpanKind.CONSUMER,
        trace,
        {
            names.MESSAGING_SYSTEM: names.NATS,
            names.MESSAGING_OPERATION_TYPE: "process",
            names.MESSAGING_OPERATION_NAME: "process",
            names.MESSAGING_DESTINATION_TEMPLATE: template,
            names.MESSAGING_DESTINATION_NAME: subject,
        },
        links,
    )


class Actor:
    """Answers questions over a bus, at most `concurrency` at once, and answers `busy` to those beyond."""

    def __init__(
        self,
        bus: Bus,
        settings: ProcessSettings,
        *,
        tracer: Tracer,
        log: FilteringBoundLogger,
        concurrency: int = 64,
        outage: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> None:
        """Describe an actor without handlers.

        Args:
            bus: brings the questions.
            settings: the settings of its process.
            tracer: the tracer of its process.
            log: the log of its process.
            concurrency: the most questions at once.
            outage: errors that handlers raise while their store does not answer. An asker hears that alone; the log
                says
                where the store stands. An error may state by `is_undone` that nothing was changed.
        """
        self._bus = bus
        self._settings = settings
        self._tracer = tracer
        self._log = log
        self._concurrency = concurrency
        self._outage = outage
        self._open: dict[int, tuple[str, float]] = {}
        """The questions that are taken, and since when."""
        self.answered = 0
        """Questions that were taken and have ended."""
        self._idle = anyio.Event()
        self._owner = TaskOwner()
        self._subscriptions: list[Subscription] = []

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the tasks of the handlers until cancelled; register handlers once this has started."""
        await self._owner.run(task_status=task_status)

    async def answer(self, rpc: Rpc[Question, Answer], handler: Handler[Question, Answer], *, group: str) -> None:
        """Answer a procedure from now on, as one process of the group."""

        answering = _Answering(rpc, handler)

        def on_message(message: Incoming) -> None:
            self._take(answering, message)

        subscription = await self._bus.subscribe(rpc.pattern(), on_message, group, asked_by=rpc.replies)
        answering.subscription = subscription
        self._subscriptions.append(subscription)

    async def drain(self) -> None:
        """Take no new question, and wait until all taken ones are answered; each has its deadline."""
        async with anyio.create_task_group() as leaving:
            for subscription in self._subscriptions:
                leaving.start_soon(self._bus.leave, subscription)
        self._subscriptions.clear()
        while self._open:
            self._idle = anyio.Event()
            await self._idle.wait()

    def open_questions(self) -> Iterable[tuple[str, float]]:
        """Return the subjects of the questions that are not answered, and since when."""
        return list(self._open.values())

    def _take(self, answering: _Answering[Any, Any], message: Incoming) -> None:
        """Decide without waiting: refuse a question that is too old or too much, and start a task for any other."""
        sent = header.read(message.header)
        if sent is None or not is_fresh(sent, self._settings):
            self._log.warning("question expired", subject=message.subject, sent=sent and sent.at)
            self._bus.respond(message, b"", header.expired())
            return
        if len(self._open) >= self._concurrency or not self._owner.is_running:
            self._bus.respond(message, b"", header.BUSY)
            return
        self._open[id(message)] = answering.rpc.subject, time.monotonic()
        left = min(sent.left, _LONGEST)
        context = RpcContext(
            tokens=answering.rpc.tokens(message.subject),
            deadline=time.monotonic() + left - max(self._settings.bus_hop_margin, left * _FOR_THE_ANSWER),
            trace=sent.trace or TraceContext.fresh(sampled=False),
        )
        self._owner.start(self._handle, answering, message, context)

    async def _handle(self, answering: _Answering[Any, Any], message: Incoming, context: RpcContext) -> None:
        started, has_failed = time.monotonic(), False
        try:
            with consumer_span(self._tracer, answering.rpc.subject, message.subject, context.trace) as span:
                try:
                    self._bus.respond(message, await self._ask(answering, message, context))
                except Failed as failed:
                    has_failed = True
                    span.fail(failed.kind)
                    self._log.warning("question failed", subject=message.subject, kind=failed.kind, error=str(failed))
                    line = header.fault(failed.kind, is_undone=failed.is_undone)
                    self._bus.respond(message, str(failed).encode(), line)
        finally:
            answering.count(time.monotonic() - started, failed=has_failed)
            del self._open[id(message)]
            self.answered += 1
            if not self._open:
                self._idle.set()

    async def _ask(self, answering: _Answering[Any, Any], message: Incoming, context: RpcContext) -> bytes:
        """Run the handler; everything that it raises becomes a fault of the closed list."""
        rpc, is_undone = answering.rpc, False
        try:
            question = rpc.question.model_validate_json(message.body)
        except ValidationError as error:
            raise Failed(Fault.CONTRACT, f"{rpc.subject}: {broken_rules(error)}") from None
        try:
            # anyio's deadline spares what is shielded from it, as SQLite's statements are.
            with anyio.fail_after(max(0.0, context.deadline - time.monotonic())):
                try:
                    answer: BaseModel = await answering.handler(question, context)
                except asyncio.CancelledError as cancelled:
                    is_undone = _is_undone(cancelled)
                    raise
            return answer.model_dump_json(exclude_defaults=True).encode()
        except Failed:
            raise
        except self._outage as error:
            self._log.warning("store failed", error=str(error))
            why = f"{rpc.subject}: the receiver's store does not answer"
            raise Failed(Fault.UNAVAILABLE, why, is_undone=_is_undone(error)) from error
        except (BusError, TimeoutError) as error:
            # Cancelled work may state it too: it waited for a lock or a connection.
            why = f"{rpc.subject}: {type(error).__name__}"
            raise Failed(Fault.UNAVAILABLE, why, is_undone=is_undone or _is_undone(error.__cause__)) from error
        except Exception as error:
            self._log.exception("handler failed", subject=message.subject)
            why = f"{rpc.subject}: the receiver's log has the reason"
            raise Failed(Fault.INTERNAL, why, is_undone=_is_undone(error)) from error


def _is_undone(error: BaseException | None) -> bool:
    """Return whether an error of a handler states that nothing was changed, as the store's errors do."""
    return getattr(error, "is_undone", False) is True
