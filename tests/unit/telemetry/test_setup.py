"""The OTEL_* variables decide which telemetry is built."""

import subprocess
import sys

import pytest

from mcpfleet.telemetry.setup import Telemetry, TelemetrySettingError, exported
from mcpfleet.telemetry.spans import Span, SpanKind
from mcpfleet.telemetry.trace import TraceContext, current

HERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
PARENT = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=True, state="a=1")


@pytest.mark.parametrize(
    ("environ", "traces", "metrics"),
    [
        ({}, None, None),
        (HERE, "http/protobuf", "http/protobuf"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, "http/protobuf", None),
        (HERE | {"OTEL_SDK_DISABLED": "true"}, None, None),
        (HERE | {"OTEL_METRICS_EXPORTER": "none"}, "http/protobuf", None),
        (HERE | {"OTEL_TRACES_EXPORTER": "none"}, None, "http/protobuf"),
        (HERE | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc", "grpc"),
        (HERE | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, "grpc", "http/protobuf"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc", "grpc"),
    ],
)
def test_variables_say_what_is_exported(environ: dict[str, str], traces: str | None, metrics: str | None) -> None:
    """Nothing without an endpoint; each signal may be switched off or go its own way."""
    assert (exported("traces", environ), exported("metrics", environ)) == (traces, metrics)


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        (HERE | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        (HERE | {"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER"),
    ],
)
def test_what_cannot_be_served_is_named(environ: dict[str, str], variable: str) -> None:
    """An operator reads which variable to mend."""
    with pytest.raises(TelemetrySettingError, match=variable):
        exported("traces", environ)


@pytest.mark.parametrize("milliseconds", ["soon", "0", "-1", "inf"])
def test_an_interval_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, milliseconds: str) -> None:
    """No default takes its place in silence."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", milliseconds)
    with pytest.raises(TelemetrySettingError, match="OTEL_METRIC_EXPORT_INTERVAL"):
        Telemetry("edge", "id")


def test_without_an_endpoint_spans_only_hand_the_context_on() -> None:
    """Nothing is built when nobody listens; a child continues its parent's trace, flag and state included."""
    telemetry = Telemetry("edge", "id")
    assert not telemetry.enabled
    assert telemetry.provider is None
    with telemetry.tracer.start("tools/call", SpanKind.SERVER, PARENT) as span:
        span.set("a", 1)
        span.fail("tool_error")
        with span.activate():
            assert span.context is PARENT
        assert not span.recording
    assert type(span) is Span
    telemetry.close()


def test_without_an_endpoint_a_new_trace_is_not_recorded() -> None:
    """It has ids for the log lines all the same."""
    span = Telemetry("edge", "id").tracer.start("tools/call", SpanKind.SERVER, None)
    assert not span.context.sampled
    assert TraceContext.parse(span.context.header()) == span.context


def test_a_span_is_current_inside_its_block() -> None:
    """Log lines inside carry the trace, and the one around it afterwards, also where the block fails."""
    tracer = Telemetry("edge", "id").tracer
    inner = TraceContext.fresh(sampled=False)
    with tracer.start("outer", SpanKind.SERVER, PARENT):
        with pytest.raises(KeyError) as raised, tracer.start("inner", SpanKind.INTERNAL, inner):
            raise KeyError(current.get())
        assert raised.value.args == (inner,)
        assert current.get() is PARENT
    assert current.get() is None


def test_nothing_of_opentelemetry_is_imported_when_nothing_is_exported() -> None:
    """Its SDK and client libraries would cost every process's start another 0.1 s."""
    script = """
import sys
from mcpfleet.telemetry.setup import Telemetry
from mcpfleet.telemetry import exposition, instruments, trace
Telemetry("edge", "id").tracer.start
print([name for name in sys.modules if name.startswith(("opentelemetry", "grpc", "requests", "google"))])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"
