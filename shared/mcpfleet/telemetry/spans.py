"""Spans for the rest of the code: light if nothing records, and the same calls if something does.

This module imports nothing of OpenTelemetry: a process that exports nothing does not pay for it. `recording.py` has the
classes that record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from types import TracebackType
from typing import ClassVar, Self

from mcpfleet.telemetry.trace import TraceContext, current

AttributeValue = str | bool | int | float | Sequence[str]
"""The value of an attribute; never a credential, never a caller's arguments (invariant 9)."""


class SpanKind(Enum):
    """A span's place between processes; the values are those of OpenTelemetry's `SpanKind`."""

    INTERNAL = 0
    SERVER = 1
    CLIENT = 2
    PRODUCER = 3
    CONSUMER = 4


class Span:
    """One piece of work in a trace; this class records nothing, and hands on its parent's context.

    `with span:` makes the trace current for log lines, ends the span, and marks it failed if an exception leaves the
    block. Any other span is ended by `end()`.
    """

    __slots__ = ("_outer", "context")

    recording: ClassVar[bool] = False
    """Whether attributes are kept: ask before building costly ones."""

    def __init__(self, context: TraceContext) -> None:
        self.context = context
        """The trace of messages that this work causes."""

    def set(self, name: str, value: AttributeValue) -> None:
        """Record an attribute."""

    def fail(self, error_type: str, message: str | None = None) -> None:
        """Mark the work failed.

        Args:
            error_type: one of few values, for `error.type`: a kind, a code, an exception's class.
            message: a sentence for the operator, which quotes nothing of the caller.
        """

    def link(self, cause: TraceContext) -> None:
        """Link other work that took part in causing this one."""

    def end(self) -> None:
        """End the span now; later attributes are lost."""

    def activate(self) -> AbstractContextManager[None]:
        """Make this OpenTelemetry's current span, for a handler that starts its own spans."""
        return nullcontext()

    def __enter__(self) -> Self:
        self._outer = current.get()
        current.set(self.context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Restored by value and not by token. A token works only in the context that made it, and a streamed answer may
        # be closed in another.
        current.set(self._outer)
        self.end()


class Tracer:
    """Starts a service's spans; this class serves a service that exports nothing."""

    __slots__ = ()

    def start(
        self,
        name: str,
        kind: SpanKind,
        parent: TraceContext | None,
        attributes: Mapping[str, AttributeValue] | None = None,
        links: Sequence[TraceContext] = (),
    ) -> Span:
        """Start a span as a child of the parent; without a parent, begin a new trace and record it.

        With an unsampled parent nothing is built. The arguments are read at once and not kept.

        Args:
            name: one of few values (`names.span_name`).
            kind: its place between processes.
            parent: the work that caused this one.
            attributes: those known at the start.
            links: other traces that took part in causing it.
        """
        del name, kind, attributes, links
        return Span(parent if parent is not None else TraceContext.fresh(sampled=False))

    def carrying(self, baggage: str) -> AbstractContextManager[None]:
        """Make W3C baggage OpenTelemetry's current one, so that a handler's libraries hand it on (X75)."""
        del baggage
        return nullcontext()
