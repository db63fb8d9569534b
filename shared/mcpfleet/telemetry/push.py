"""Pushes metrics to the collector every OTEL_METRIC_EXPORT_INTERVAL milliseconds."""

from __future__ import annotations

import threading
import time
from typing import cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from mcpfleet.telemetry.metrics import Family, Metrics, Point
from mcpfleet.telemetry.otlp import Outage, finished

_SCOPE = InstrumentationScope("mcpfleet")


class MetricPush:
    """A thread that reads a service's metrics and sends them, until it is closed."""

    def __init__(
        self, metrics: Metrics, resource: Resource, exporter: MetricExporter, interval: float, outage: Outage
    ) -> None:
        self._metrics = metrics
        self._resource = resource
        self._exporter = exporter
        self._interval = interval
        self._outage = outage
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="telemetry-metrics")
        self._thread.start()

    def close(self, within: float) -> None:
        """Send the last values, and give up after so many seconds."""
        self._closing.set()
        finished(self._thread.join, within)
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._closing.wait(self._interval):
            self._send()
        self._send()

    def _send(self) -> None:
        families: list[Family] = []
        try:
            families = [family for family in self._metrics.read() if family.points]
            if not families:
                return
            result = self._exporter.export(snapshot(families, self._resource, self._metrics.since_ns, time.time_ns()))
        except Exception:  # whatever a client library raises, the next reading has these counts too
            result = MetricExportResult.FAILURE
        self._outage.note(taken=result is MetricExportResult.SUCCESS, items=len(families))


def snapshot(families: list[Family], resource: Resource, since_ns: int, now_ns: int) -> MetricsData:
    """Return families in the form of OpenTelemetry's exporters: cumulative, from the start of the process."""
    metrics = [_metric(family, since_ns, now_ns) for family in families]
    scope = ScopeMetrics(_SCOPE, metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource, [scope], schema_url="")])


def _metric(family: Family, since_ns: int, now_ns: int) -> Metric:
    data: Histogram | Sum | Gauge
    if family.kind == "histogram":
        spreads = [_spread(family, point, since_ns, now_ns) for point in family.points]
        data = Histogram(spreads, AggregationTemporality.CUMULATIVE)
    else:
        # Floats throughout: some collectors refuse a series whose points change their type.
        numbers = [NumberDataPoint(_attributes(family, p), since_ns, now_ns, float(p.value)) for p in family.points]
        if family.kind == "counter":
            data = Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        else:
            data = Gauge(numbers)
    return Metric(family.name, family.description, family.unit, data)


def _spread(family: Family, point: Point, since_ns: int, now_ns: int) -> HistogramDataPoint:
    # Minimum and maximum are optional on the wire, but not in the SDK's types; we do not keep them.
    unknown = cast("float", None)
    return HistogramDataPoint(
        attributes=_attributes(family, point),
        start_time_unix_nano=since_ns,
        time_unix_nano=now_ns,
        count=sum(point.buckets),
        sum=point.value,
        bucket_counts=point.buckets,
        explicit_bounds=family.bounds,
        min=unknown,
        max=unknown,
    )


def _attributes(family: Family, point: Point) -> dict[str, str]:
    """Return the attributes; an empty label is an absent one. Prometheus sees both alike, OTLP does not."""
    return {name: value for name, value in zip(family.labels, point.labels, strict=True) if value}
