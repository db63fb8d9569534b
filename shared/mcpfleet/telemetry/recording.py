"""Recorded spans: our thin layer over the OpenTelemetry SDK, imported only if spans are exported."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import ClassVar

from opentelemetry import context as otel_context
from opentelemetry import trace as otel
from opentelemetry.baggage.propagation import W3CBaggagePropagator

from mcpfleet.telemetry.names import CANCELLED, ERROR_TYPE
from mcpfleet.telemetry.spans import AttributeValue, Span, SpanKind, Tracer
from mcpfleet.telemetry.trace import TraceContext

_EMPTY = otel_context.Context()
_BAGGAGE = W3CBaggagePropagator()


class RecordedSpan(Span):
    """A span that an OpenTelemetry tracer records."""

    __slots__ = ("_failed", "_span")

    recording: ClassVar[bool] = True

    def __init__(self, span: otel.Span) -> None:
        self._span = span
        self._failed = False
        own = span.get_span_context()
        super().__init__(
            TraceContext(
                otel.format_trace_id(own.trace_id),
                otel.format_span_id(own.span_id),
                sampled=True,
                state=own.trace_state.to_header(),
            )
        )

    def set(self, name: str, value: AttributeValue) -> None:
        """Record an attribute."""
        self._span.set_attribute(name, value)

    def fail(self, error_type: str, message: str | None = None) -> None:
        """Mark the work failed."""
        self._failed = True
        self._span.set_attribute(ERROR_TYPE, error_type)
        self._span.set_status(otel.StatusCode.ERROR, message)

    def link(self, cause: TraceContext) -> None:
        """Link other work that took part in causing this one."""
        self._span.add_link(_span_context(cause))

    def end(self) -> None:
        """End the span now; later attributes are lost."""
        self._span.end()

    def activate(self) -> AbstractContextManager[None]:
        """Make this OpenTelemetry's current span, for a handler that starts its own spans."""
        return _Attached(self._span)

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The exception's text stays out: it may quote the caller.
        if exception is not None and not self._failed:
            cancelled = isinstance(exception, asyncio.CancelledError)
            self.fail(CANCELLED if cancelled else type(exception).__qualname__)
        super().__exit__(kind, exception, traceback)


class UnsampledSpan(Span):
    """A span of an unrecorded trace, in a service that records others."""

    __slots__ = ()

    def activate(self) -> AbstractContextManager[None]:
        """Tell OpenTelemetry that this trace is not recorded, or a handler's own span would begin a new one."""
        return _Attached(_Unsampled(self.context))


class RecordingTracer(Tracer):
    """Starts a service's spans, and records those of sampled traces."""

    __slots__ = ("_tracer",)

    def __init__(self, tracer: otel.Tracer) -> None:
        self._tracer = tracer

    def start(
        self,
        name: str,
        kind: SpanKind,
        parent: TraceContext | None,
        attributes: Mapping[str, AttributeValue] | None = None,
        links: Sequence[TraceContext] = (),
    ) -> Span:
        """Start a span as a child of the parent; without a parent, begin a new trace and record it."""
        if parent is None:
            context = _EMPTY
        elif parent.sampled:
            context = otel.set_span_in_context(otel.NonRecordingSpan(_span_context(parent)), _EMPTY)
        else:
            return UnsampledSpan(parent)
        return RecordedSpan(
            self._tracer.start_span(
                name,
                context,
                otel.SpanKind(kind.value),
                attributes,
                [otel.Link(_span_context(link)) for link in links],
            )
        )

    def carrying(self, baggage: str) -> AbstractContextManager[None]:
        """Make W3C baggage OpenTelemetry's current one, so that a handler's libraries hand it on (X75)."""
        return _Carried(_BAGGAGE.extract({"baggage": baggage}, otel_context.get_current()))


class _Carried:
    """Makes a context OpenTelemetry's current one for the length of a block."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: otel_context.Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token = otel_context.attach(self._context)

    def __exit__(self, *_: object) -> None:
        otel_context.detach(self._token)


class _Unsampled(otel.NonRecordingSpan):
    """Tells its trace on demand: nearly no handler asks, and nine calls in ten have one."""

    def __init__(self, context: TraceContext) -> None:
        super().__init__(otel.INVALID_SPAN_CONTEXT)
        self._of = context

    def get_span_context(self) -> otel.SpanContext:
        return _span_context(self._of)


class _Attached:
    """Makes a span OpenTelemetry's current one for the length of a block; each call has one."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: otel.Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        self._token = otel_context.attach(otel.set_span_in_context(self._span))

    def __exit__(self, *_: object) -> None:
        otel_context.detach(self._token)


def _span_context(context: TraceContext) -> otel.SpanContext:
    return otel.SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=True,
        trace_flags=otel.TraceFlags(otel.TraceFlags.SAMPLED if context.sampled else otel.TraceFlags.DEFAULT),
        trace_state=otel.TraceState.from_header([context.state]) if context.state else None,
    )
