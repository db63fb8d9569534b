"""The way to the collector: its address and protocol, and the behaviour while it is away.

All this runs in threads of the SDK: the path of a call only appends to a bounded queue. Data that a collector does not
take is lost. One line says so, and a count runs until the collector takes data again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Literal

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import DEFAULT_ON
from structlog.typing import FilteringBoundLogger

# The SDK would log each failed batch, each retry and each span that its full queue drops; `Outage` logs it once.
for _name in ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

Protocol = Literal["http/protobuf", "grpc"]


class Outage:
    """Logs once that a collector does not take a signal, and once that it does again."""

    def __init__(self, signal: Literal["traces", "metrics"], log: FilteringBoundLogger) -> None:
        self._signal = signal
        self._log = log
        self._lost: int | None = None

    def note(self, *, taken: bool, items: int) -> None:
        """Count the result of a batch; called by one thread."""
        if not taken:
            if self._lost is None:
                self._log.warning("export failed", signal=self._signal, setting="OTEL_EXPORTER_OTLP_ENDPOINT")
            self._lost = (self._lost or 0) + items
        elif self._lost is not None:
            self._log.info("export resumed", signal=self._signal, lost=self._lost)
            self._lost = None


class SpanExport:
    """A service's own tracer provider, whose spans go to the collector in batches."""

    def __init__(self, resource: Resource, protocol: Protocol, log: FilteringBoundLogger) -> None:
        self._exporter = _WatchedExporter(span_exporter(protocol), Outage("traces", log))
        # The decision to record a trace precedes its spans. For the spans that an application starts inside of ours,
        # the parent decides.
        self.provider = TracerProvider(sampler=DEFAULT_ON, resource=resource, shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(self._exporter))

    def close(self, within: float) -> None:
        """Hand over the rest, and give up after so many seconds."""
        if not finished(self.provider.shutdown, within):
            self._exporter.shutdown()


def span_exporter(protocol: Protocol) -> SpanExporter:
    """Make the exporter of spans; it reads its address, headers and timeout from the OTEL_* variables."""
    # Imported here: each brings a client library, and a process uses one.
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as grpc  # noqa: PLC0415

        return grpc.OTLPSpanExporter()
    from opentelemetry.exporter.otlp.proto.http import trace_exporter as http  # noqa: PLC0415

    return http.OTLPSpanExporter()


def metric_exporter(protocol: Protocol) -> MetricExporter:
    """Make the exporter of metrics; it reads its address, headers and timeout from the OTEL_* variables."""
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as grpc  # noqa: PLC0415

        return grpc.OTLPMetricExporter()
    from opentelemetry.exporter.otlp.proto.http import metric_exporter as http  # noqa: PLC0415

    return http.OTLPMetricExporter()


def finished(work: Callable[[], object], within: float) -> bool:
    """Run blocking work in a thread, and return whether it ended within so many seconds; else it is abandoned."""
    thread = threading.Thread(target=work, daemon=True, name="telemetry-close")
    thread.start()
    thread.join(within)
    return not thread.is_alive()


class _WatchedExporter(SpanExporter):
    """Passes batches on, tells an `Outage` their results, and ends at once when told to."""

    def __init__(self, inner: SpanExporter, outage: Outage) -> None:
        self._inner = inner
        self._outage = outage
        self._closed = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._closed.is_set():
            return SpanExportResult.FAILURE
        try:
            result = self._inner.export(spans)
        except Exception:  # whatever a client library raises, these spans are lost
            result = SpanExportResult.FAILURE
        self._outage.note(taken=result is SpanExportResult.SUCCESS, items=len(spans))
        return result

    def shutdown(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._inner.shutdown()
