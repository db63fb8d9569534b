"""Spans and metrics on their way to a real collector, and what happens while it is away."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import structlog
from opentelemetry import trace as otel
from structlog.testing import capture_logs

from mcpfleet.telemetry import names
from mcpfleet.telemetry.setup import Telemetry
from mcpfleet.telemetry.spans import SpanKind
from mcpfleet.telemetry.trace import TraceContext
from tests.kit.otlp import OtlpReceiver, otlp_receiver
from tests.kit.waiting import until

PARENT = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=True, state="a=1")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches leave at once, and a collector that is away is given up within a second."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OtlpReceiver]:
    async with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        yield receiver


@contextlib.contextmanager
def closed_port() -> Iterator[str]:
    """An address that refuses connections for as long as the block lasts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@contextlib.asynccontextmanager
async def telemetry(service: str = "edge") -> AsyncIterator[Telemetry]:
    made = Telemetry(service, f"{service}-1")
    try:
        yield made
    finally:
        await asyncio.to_thread(made.close)


async def test_one_call_is_one_trace_over_two_services(collector: OtlpReceiver) -> None:
    """Invariant 10: each hop's span is the child of the one that called it, under its own service's name."""
    async with telemetry("edge") as edge, telemetry("worker") as worker:
        assert edge.enabled
        attributes = {names.MCP_METHOD_NAME: "tools/call", names.GEN_AI_TOOL_NAME: "search"}
        with edge.tracer.start(names.span_name("tools/call", "search"), SpanKind.SERVER, PARENT, attributes) as outer:
            carried = TraceContext.parse(outer.context.header(), outer.context.state)
            assert carried is not None
            with worker.tracer.start("process pool.{pool}.call", SpanKind.CONSUMER, carried) as inner:
                inner.set(names.MESSAGING_SYSTEM, names.NATS)
        spans = await collector.wait_for(lambda spans: len(spans) == 2)
    served, processed = sorted(spans, key=lambda span: span.service)
    assert (served.service, served.instance, served.kind) == ("edge", "edge-1", "server")
    assert served.name == "tools/call search"
    assert served.attributes == attributes
    assert (served.trace_id, served.parent_id) == (PARENT.trace_id, PARENT.span_id)
    assert (processed.service, processed.kind) == ("worker", "consumer")
    assert (processed.trace_id, processed.parent_id) == (PARENT.trace_id, served.span_id)
    assert carried.state == "a=1"


async def test_a_new_trace_has_no_parent(collector: OtlpReceiver) -> None:
    """A request without a trace begins one that is recorded."""
    async with telemetry() as edge:
        with edge.tracer.start("tools/list", SpanKind.SERVER, None) as span:
            assert span.recording
            assert span.context.sampled
        [arrived] = await collector.wait_for(lambda spans: spans)
    assert (arrived.parent_id, arrived.trace_id) == ("", span.context.trace_id)


async def test_an_unsampled_trace_is_not_recorded(collector: OtlpReceiver) -> None:
    """The edge's decision holds in every process: nothing is built, the context goes on."""
    unsampled = PARENT.resampled(sampled=False)
    async with telemetry() as edge:
        with edge.tracer.start("tools/call", SpanKind.SERVER, unsampled) as span:
            assert not span.recording
            assert span.context is unsampled
        edge.tracer.start("marker", SpanKind.SERVER, PARENT).end()
        spans = await collector.wait_for(lambda spans: spans)
    assert [span.name for span in spans] == ["marker"]


async def test_failures_say_their_kind_and_not_what_was_sent(collector: OtlpReceiver) -> None:
    """Invariant 9: an exception's text may quote the caller, so only its class is recorded."""
    async with telemetry() as edge:
        with pytest.raises(ValueError, match="secret"), edge.tracer.start("raised", SpanKind.SERVER, PARENT):
            raise ValueError("secret")
        with pytest.raises(asyncio.CancelledError), edge.tracer.start("cancelled", SpanKind.SERVER, PARENT):
            raise asyncio.CancelledError
        span = edge.tracer.start("said", SpanKind.SERVER, PARENT)
        span.fail("tool_error", "the tool says so")
        with pytest.raises(ValueError, match="secret"), span:
            raise ValueError("secret")
        spans = await collector.wait_for(lambda spans: len(spans) == 3)
    seen = {span.name: (span.status, span.attributes["error.type"], span.status_message) for span in spans}
    assert seen == {
        "raised": ("error", "ValueError", ""),
        "cancelled": ("error", "cancelled", ""),
        "said": ("error", "tool_error", "the tool says so"),
    }


async def test_links_name_other_causes(collector: OtlpReceiver) -> None:
    """A span may have been caused by more than its parent."""
    other = TraceContext.fresh(sampled=True)
    async with telemetry() as edge:
        started = edge.tracer.start("tools/call", SpanKind.SERVER, PARENT, links=[other])
        started.link(PARENT)
        started.end()
        [span] = await collector.wait_for(lambda spans: spans)
    assert span.links == ((other.trace_id, other.span_id), (PARENT.trace_id, PARENT.span_id))


async def test_an_applications_own_span_is_a_child_of_ours(collector: OtlpReceiver) -> None:
    """The author of a tool may use OpenTelemetry as usual: its current span is ours."""
    async with telemetry("worker") as worker:
        assert worker.provider is not None
        authors = worker.provider.get_tracer("application")
        with worker.tracer.start("process", SpanKind.CONSUMER, PARENT) as span, span.activate():
            otel.get_current_span().set_attribute("rows", 3)
            with authors.start_as_current_span("query"):
                pass
        assert not otel.get_current_span().is_recording()
        spans = {span.name: span for span in await collector.wait_for(lambda spans: len(spans) == 2)}
    assert spans["query"].parent_id == spans["process"].span_id
    assert spans["process"].attributes == {"rows": 3}


async def test_an_applications_own_span_of_an_unsampled_call_is_not_recorded(collector: OtlpReceiver) -> None:
    """It would else begin a trace of its own for every call that is not recorded."""
    async with telemetry("worker") as worker:
        assert worker.provider is not None
        authors = worker.provider.get_tracer("application")
        unsampled = PARENT.resampled(sampled=False)
        with worker.tracer.start("process", SpanKind.CONSUMER, unsampled) as span, span.activate():
            query = authors.start_span("query")
        assert not query.is_recording()
        assert otel.format_trace_id(query.get_span_context().trace_id) == PARENT.trace_id


async def test_metrics_are_pushed_and_once_more_at_the_end(collector: OtlpReceiver) -> None:
    """A collector that does not scrape sees the same numbers; empty labels are absent attributes."""
    async with telemetry() as edge:
        calls = edge.metrics.counter("calls", "Calls.", labels=("outcome", "pool"))
        spread = edge.metrics.histogram("wait", "Waits.", (0.1, 1), unit="s")
        level = edge.metrics.gauge("level", "Level.")
        calls.add(2, "ok", "")
        spread.record(0.5)
        level.set(7)
        [point] = (await collector.wait_for_metric("calls")).sum.data_points
        assert {pair.key: pair.value.string_value for pair in point.attributes} == {"outcome": "ok"}
        assert point.as_double == 2
        [bucketed] = (await collector.wait_for_metric("wait")).histogram.data_points
        assert (list(bucketed.bucket_counts), list(bucketed.explicit_bounds)) == ([0, 1, 0], [0.1, 1])
        assert not bucketed.HasField("min")
        calls.add(1, "ok", "")
    last = await collector.wait_for_metric("calls")
    assert last.sum.data_points[0].as_double == 3
    assert last.sum.is_monotonic
    assert {service for service, _ in collector.metrics} == {"edge"}


async def test_an_outage_is_said_once_and_its_end_too(collector: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that is away costs one line, which names the setting; its return says what was lost."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    collector.status = 400
    with capture_logs() as lines:
        async with telemetry() as edge:
            for number in (1, 2, 3):
                edge.tracer.start("lost", SpanKind.SERVER, PARENT).end()
                await collector.wait_for_requests(number)
            collector.status = 200
            edge.tracer.start("taken", SpanKind.SERVER, PARENT).end()
            await collector.wait_for(lambda spans: spans)
            await until(lambda: len(lines) == 2)  # the exporter hears of it after the collector has it
    assert [line["log_level"] for line in lines] == ["warning", "info"]
    assert lines[0]["setting"] == "OTEL_EXPORTER_OTLP_ENDPOINT"
    assert lines[1]["lost"] == 3


async def test_spans_cost_the_caller_nothing_while_the_collector_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """More spans than the queue holds are started and ended without waiting for anything."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    with closed_port() as endpoint, capture_logs():
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        async with telemetry() as edge:
            began = time.monotonic()
            for _ in range(5000):
                edge.tracer.start("lost", SpanKind.SERVER, PARENT).end()
            assert time.monotonic() - began < 30  # a wait for an export each 512 spans


async def test_grpc_is_used_where_the_variable_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other protocol tells an outage in the same words."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with closed_port() as endpoint, capture_logs() as lines:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        async with telemetry() as edge:
            edge.tracer.start("lost", SpanKind.SERVER, PARENT).end()
    assert [line["setting"] for line in lines] == ["OTEL_EXPORTER_OTLP_ENDPOINT"]


async def test_closing_is_bounded_when_the_collector_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that accepts and never answers holds the end of a process up for so many seconds, not longer."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "10")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with capture_logs():
            edge = Telemetry("edge", "id", log=structlog.get_logger())
            edge.metrics.counter("calls", "")
            edge.tracer.start("lost", SpanKind.SERVER, PARENT).end()
            began = time.monotonic()
            await asyncio.to_thread(edge.close, 0.3)
            assert time.monotonic() - began < 8
            for thread in threading.enumerate():
                if thread.name.startswith(("Otel", "telemetry")):
                    await asyncio.to_thread(thread.join, 10)
