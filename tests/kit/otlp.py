"""A collector for tests: takes OTLP over HTTP on a free port, and hands the spans out as plain values."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import h11
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True, slots=True)
class Span:
    """One span as it reached the collector."""

    name: str
    kind: str
    """`internal`, `server`, `client`, `producer` or `consumer`."""
    trace_id: str
    span_id: str
    parent_id: str
    """Empty where a trace begins."""
    service: str
    instance: str
    attributes: dict[str, Any]
    status: str
    """`unset`, `ok` or `error`."""
    status_message: str
    links: tuple[tuple[str, str], ...]
    """Trace id and span id of each."""
    start_ns: int
    end_ns: int


@dataclass
class OtlpReceiver:
    """The requests so far. It answers every request with `status`, which a test may change."""

    endpoint: str = ""
    """For OTEL_EXPORTER_OTLP_ENDPOINT."""
    status: int = 200
    spans: list[Span] = field(default_factory=list)
    metrics: list[tuple[str, Metric]] = field(default_factory=list)
    """The service's name, and the metric as it came."""
    requests: int = 0
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def wait_for(self, done: Callable[[Sequence[Span]], Any], timeout: float = 30.0) -> list[Span]:
        """Return all spans as soon as they satisfy the condition; TimeoutError names what is there by then."""
        return await self._wait(lambda: done(self.spans), timeout)

    async def wait_for_requests(self, number: int, timeout: float = 30.0) -> list[Span]:
        """Return all spans once so many requests arrived, whatever was answered to them."""
        return await self._wait(lambda: self.requests >= number, timeout)

    async def wait_for_metric(self, name: str, timeout: float = 30.0) -> Metric:
        """Return the newest metric of that name as soon as there is one."""
        await self._wait(lambda: any(metric.name == name for _, metric in self.metrics), timeout)
        return next(metric for _, metric in reversed(self.metrics) if metric.name == name)

    async def _wait(self, done: Callable[[], Any], timeout: float) -> list[Span]:
        try:
            async with asyncio.timeout(timeout), self._arrived:
                await self._arrived.wait_for(done)
        except TimeoutError as error:
            there = [f"{span.service}: {span.name}" for span in self.spans]
            raise TimeoutError(f"after {timeout} s the collector has {self.requests} requests, {there}") from error
        return list(self.spans)

    async def take(self, path: str, body: bytes) -> int:
        """Keep one request's content and say with which status to answer it."""
        async with self._arrived:
            self.requests += 1
            if self.status == 200:
                if path == "/v1/traces":
                    self.spans += _spans(ExportTraceServiceRequest.FromString(body))
                elif path == "/v1/metrics":
                    self.metrics += _metrics(ExportMetricsServiceRequest.FromString(body))
            self._arrived.notify_all()
        return self.status


@asynccontextmanager
async def otlp_receiver() -> AsyncIterator[OtlpReceiver]:
    """Run a collector within the test's event loop."""
    receiver = OtlpReceiver()
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await _serve(receiver, reader, writer)
        finally:
            connections.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    receiver.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield receiver
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()


async def _serve(receiver: OtlpReceiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection, which exporters keep alive."""
    http = h11.Connection(h11.SERVER)
    while True:
        request, body = None, b""
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            else:  # the peer closed
                return
        assert request is not None
        if (b"content-encoding", b"gzip") in request.headers:
            body = gzip.decompress(body)
        status = await receiver.take(request.target.decode(), body)
        for part in (h11.Response(status_code=status, headers=[("content-length", "0")]), h11.EndOfMessage()):
            writer.write(http.send(part) or b"")
        await writer.drain()
        http.start_next_cycle()


def _spans(request: ExportTraceServiceRequest) -> Iterable[Span]:
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield Span(
                    name=span.name,
                    kind=WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    service=resource.get("service.name", ""),
                    instance=resource.get("service.instance.id", ""),
                    attributes=_attributes(span.attributes),
                    status=Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_").lower(),
                    status_message=span.status.message,
                    links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    start_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                )


def _metrics(request: ExportMetricsServiceRequest) -> Iterable[tuple[str, Metric]]:
    for resource_metrics in request.resource_metrics:
        service = _attributes(resource_metrics.resource.attributes).get("service.name", "")
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                yield service, metric


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case "array_value":
            return [_value(item) for item in value.array_value.values]
        case None:
            return None
        case name:
            return getattr(value, name)
