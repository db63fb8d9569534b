"""One request is one trace, over every hop that it takes (invariant 10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mcp import Client
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from mcpfleet.testing.fleet import Fleet
from tests.kit.otlp import OtlpReceiver, Span, otlp_receiver

APP = Path(__file__).with_name("app.py")
CALL = "process pool.{pool}.{definition}.call"


def fleet_of(receiver: OtlpReceiver, **settings: str) -> Fleet:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        # Every use of a snapshot confirms it, so that the catalog is asked within the request.
        "MCPFLEET_SNAPSHOT_LASTS": "0",
        **settings,
    }
    return Fleet(APP, edges=2, environment=environment)


@contextmanager
def client_spans(receiver: OtlpReceiver) -> Iterator[None]:
    """Export what the official client records of its own calls, as an application that traces would."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider(resource=Resource.create({"service.name": "client"}))
        trace.set_tracer_provider(provider)
    exporter = BatchSpanProcessor(OTLPSpanExporter(f"{receiver.endpoint}/v1/traces"), schedule_delay_millis=100)
    provider.add_span_processor(exporter)
    yield
    exporter.shutdown()  # type: ignore[no-untyped-call]  # the SDK does not say what it returns


async def test_every_hop_is_a_child_of_the_one_that_called_it() -> None:
    """The client's span, the edge's, authorization's, the catalog's and the worker's are one tree."""
    async with otlp_receiver() as receiver, fleet_of(receiver) as fleet:
        with client_spans(receiver):
            with trace.get_tracer("test").start_as_current_span("caller") as caller:
                trace_id = f"{caller.get_span_context().trace_id:032x}"
                async with Client(fleet.urls[1]) as client:
                    await client.call_tool("add", {"left": 1, "right": 2})
            spans = await receiver.wait_for(lambda spans: is_whole(of_trace(spans, trace_id)))
    mine = of_trace(spans, trace_id)

    def above(span: Span) -> Span:
        return mine[span.parent_id]

    [worker] = [span for span in mine.values() if span.service == "worker"]
    edge = above(worker)
    assert (worker.name, worker.kind) == (CALL, "consumer")
    assert (edge.service, edge.name, edge.kind) == ("edge", "tools/call add", "server")
    assert (above(edge).service, above(edge).kind) == ("client", "client")
    for asked in ("authorization", "catalog"):
        assert {above(span).service for span in mine.values() if span.service == asked} == {"edge"}
    assert [span.name for span in mine.values() if not span.parent_id] == ["caller"]


def of_trace(spans: Sequence[Span], trace_id: str) -> dict[str, Span]:
    return {span.span_id: span for span in spans if span.trace_id == trace_id}


def is_whole(spans: dict[str, Span]) -> bool:
    """Whether every service's part has arrived, and every parent."""
    services = {"client", "edge", "authorization", "catalog", "worker"}
    arrived = services <= {span.service for span in spans.values()}
    return arrived and all(not span.parent_id or span.parent_id in spans for span in spans.values())


async def test_spans_carry_the_names_of_the_conventions() -> None:
    """OpenTelemetry's conventions for MCP and for messaging; nothing of the arguments (invariant 9)."""
    async with otlp_receiver() as receiver, fleet_of(receiver) as fleet:
        async with Client(fleet.urls[0]) as client:
            await client.call_tool("refuse", {"why": "a secret reason"})
        spans = await receiver.wait_for(
            lambda spans: {"tools/call refuse", CALL} <= {span.name for span in spans},
        )
    [worker] = [span for span in spans if span.service == "worker"]
    [edge] = [span for span in spans if span.span_id == worker.parent_id]
    assert edge.attributes["mcp.method.name"] == "tools/call"
    assert edge.attributes["gen_ai.tool.name"] == "refuse"
    assert edge.attributes["gen_ai.operation.name"] == "execute_tool"
    assert edge.attributes["mcp.protocol.version"] == "2026-07-28"
    assert edge.attributes["network.transport"] == "tcp"
    assert worker.attributes["messaging.system"] == "nats"
    assert worker.attributes["messaging.destination.template"] == "pool.{pool}.{definition}.call"
    assert (worker.status, worker.attributes["error.type"]) == ("error", "tool_error")
    assert "secret" not in str(spans)


async def test_the_edge_decides_what_is_recorded() -> None:
    """A ratio of 0 records nothing, whatever flag a caller sends from a network that is not trusted."""
    async with otlp_receiver() as receiver, fleet_of(receiver, MCPFLEET_SAMPLE_RATIO="0") as fleet:
        with client_spans(receiver), trace.get_tracer("test").start_as_current_span("caller"):
            async with Client(fleet.urls[0]) as client:
                await client.call_tool("add", {"left": 1, "right": 2})
        spans = await receiver.wait_for(lambda spans: any(span.name == "caller" for span in spans))
        assert {span.service for span in spans} == {"client"}
