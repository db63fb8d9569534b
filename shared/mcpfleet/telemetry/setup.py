"""The telemetry of a service: one object that owns its spans and metrics, without globals.

Several services may share a process, and each has its own `service.name`. OpenTelemetry's own variables say what is
exported, and where to. Without an endpoint nothing of its SDK is imported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Literal

import structlog

from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.telemetry.spans import Tracer

if TYPE_CHECKING:  # none of these is imported if nothing is exported
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from structlog.typing import FilteringBoundLogger

    from mcpfleet.telemetry.otlp import SpanExport
    from mcpfleet.telemetry.push import MetricPush

CLOSE_WITHIN: Final = 5.0
"""Seconds that handing over the last spans and metrics may take."""

Signal = Literal["traces", "metrics"]
Protocol = Literal["http/protobuf", "grpc"]


class TelemetrySettingError(ValueError):
    """Raised when an OTEL_* variable has an unusable value."""

    def __init__(self, variable: str, problem: str) -> None:
        super().__init__(f"{variable}: {problem}")


class Telemetry:
    """The tracer and the metrics of a service."""

    def __init__(self, service: str, instance: str, *, log: FilteringBoundLogger | None = None) -> None:
        """Build what the OTEL_* variables ask for.

        Args:
            service: `service.name`; OTEL_SERVICE_NAME does not override it, since it would name all services alike.
            instance: `service.instance.id`, the id of the process.
            log: tells when the collector is away.

        Raises:
            TelemetrySettingError: a variable has an unusable value.
        """
        self.metrics = Metrics()
        self.tracer = Tracer()
        self._spans: SpanExport | None = None
        self._push: MetricPush | None = None
        protocols: dict[Signal, Protocol | None] = {
            "traces": exported("traces", os.environ),
            "metrics": exported("metrics", os.environ),
        }
        if any(protocols.values()):
            self._build(_resource(service, instance), protocols, log or structlog.get_logger(), _interval(os.environ))

    @property
    def enabled(self) -> bool:
        """Whether spans are exported."""
        return self._spans is not None

    @property
    def provider(self) -> TracerProvider | None:
        """The OpenTelemetry provider behind the tracer, for an application that starts its own spans."""
        return self._spans.provider if self._spans is not None else None

    def close(self, within: float = CLOSE_WITHIN) -> None:
        """Hand over the last spans and metrics; blocks for at most `within` seconds, then drops the rest."""
        until = time.monotonic() + within
        if self._spans is not None:
            self._spans.close(within)
        if self._push is not None:
            self._push.close(max(0.0, until - time.monotonic()))
        self.metrics.let_go()

    def _build(
        self, resource: Resource, protocols: dict[Signal, Protocol | None], log: FilteringBoundLogger, interval: float
    ) -> None:
        # Imported here: a process that exports nothing does not pay for OpenTelemetry's SDK and a client library.
        from mcpfleet.telemetry import otlp, push, recording  # noqa: PLC0415

        try:
            if (protocol := protocols["traces"]) is not None:
                self._spans = otlp.SpanExport(resource, protocol, log)
                self.tracer = recording.RecordingTracer(self._spans.provider.get_tracer("mcpfleet"))
            if (protocol := protocols["metrics"]) is not None:
                exporter = otlp.metric_exporter(protocol)
                outage = otlp.Outage("metrics", log)
                self._push = push.MetricPush(self.metrics, resource, exporter, interval, outage)
        except Exception as error:
            raise TelemetrySettingError("OTEL_EXPORTER_OTLP_*", str(error)) from error


def exported(signal: Signal, environ: Mapping[str, str]) -> Protocol | None:
    """Return the protocol that exports a signal; None if it is not exported.

    A signal is exported if an endpoint is set and no variable says otherwise. Raises `TelemetrySettingError`.
    """
    own = signal.upper()
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    endpoint = environ.get(f"OTEL_EXPORTER_OTLP_{own}_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    exporter = environ.get(f"OTEL_{own}_EXPORTER") or "otlp"
    if exporter not in ("otlp", "none"):
        raise TelemetrySettingError(f"OTEL_{own}_EXPORTER", f"otlp or none, not {exporter!r}")
    if not endpoint or exporter == "none":
        return None
    protocol = environ.get(f"OTEL_EXPORTER_OTLP_{own}_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    match protocol or "http/protobuf":
        case "grpc":
            return "grpc"
        case "http/protobuf" if endpoint.startswith(("http://", "https://")):
            return "http/protobuf"
        case "http/protobuf":
            raise TelemetrySettingError("OTEL_EXPORTER_OTLP_ENDPOINT", "a URL that begins with http:// or https://")
        case other:
            raise TelemetrySettingError("OTEL_EXPORTER_OTLP_PROTOCOL", f"http/protobuf or grpc, not {other!r}")


def _resource(service: str, instance: str) -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    return Resource.create(
        {
            "service.name": service,
            "service.namespace": "mcpfleet",
            "service.instance.id": instance,
            "service.version": version("mcpfleet"),
        }
    )


def _interval(environ: Mapping[str, str]) -> float:
    """Return the seconds between two pushes of metrics."""
    name = "OTEL_METRIC_EXPORT_INTERVAL"
    try:
        milliseconds = float(environ.get(name) or 60_000)
    except ValueError:
        milliseconds = 0
    if not 0 < milliseconds < 86_400_000:
        raise TelemetrySettingError(name, "milliseconds, above 0 and under a day")
    return milliseconds / 1000
