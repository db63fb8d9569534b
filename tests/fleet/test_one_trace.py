"""One request is one trace, over every hop that it takes (invariant 10)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import Client
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from mcp_types import ElicitRequestParams, ElicitResult, ErrorData, TextResourceContents
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from mcpfleet.cli.operate import publish
from mcpfleet.testing.fleet import Fleet
from tests.contract.fleet.listener import listening
from tests.kit.jaeger import Collector, collector
from tests.kit.otlp import Span
from tests.kit.raw import connected
from tests.kit.tasks import CAPABLE, TaskClient

APP = Path(__file__).with_name("app.py")
TRACED = Path(__file__).with_name("traced_app.py")
CALL = "process pool.{pool}.{definition}.call"
HINT = "process hint.resource.{endpoint}.{pool}.{key}"
LIST_HINT = "process hint.catalog.{endpoint}"
NEWS = "library://news"
FORMS: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}


def fleet_of(receiver: Collector, app: Path = APP, **settings: str) -> Fleet:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        # Every use of a snapshot confirms it, so that the catalog is asked within the request.
        "MCPFLEET_SNAPSHOT_LASTS": "0",
        **settings,
    }
    return Fleet(app, edges=2, environment=environment)


@asynccontextmanager
async def client_spans(receiver: Collector) -> AsyncIterator[None]:
    """Export what the official client records of its own calls, as an application that traces would."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider(resource=Resource.create({"service.name": "client"}))
        trace.set_tracer_provider(provider)
    exporter = BatchSpanProcessor(OTLPSpanExporter(f"{receiver.endpoint}/v1/traces"), schedule_delay_millis=100)
    provider.add_span_processor(exporter)
    yield
    # In a thread: it waits for the receiver, which lives on this loop.
    await anyio.to_thread.run_sync(exporter.shutdown)


@pytest.mark.rule("invariant 10")
async def test_every_hop_is_a_child_of_the_one_that_called_it() -> None:
    """The client's span, the edge's, authorization's, the catalog's and the worker's are one tree."""
    async with collector() as receiver, fleet_of(receiver) as fleet, client_spans(receiver):
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
    return services <= {span.service for span in spans.values()} and is_joined(spans)


def is_joined(spans: dict[str, Span]) -> bool:
    """Whether every parent has arrived."""
    return bool(spans) and all(not span.parent_id or span.parent_id in spans for span in spans.values())


async def fill_in(context: Any, params: ElicitRequestParams) -> ElicitResult | ErrorData:
    return ElicitResult(action="accept", content={"number": 3})


def rounds(spans: Iterable[Span], method: str) -> list[tuple[Span, Span]]:
    """An edge's spans of a method, each with its worker's, in their order."""
    edges = [span for span in spans if span.service == "edge" and span.name == method]
    edges.sort(key=lambda span: span.start_ns)
    workers = {span.parent_id: span for span in spans if span.service == "worker"}
    return [(edge, workers[edge.span_id]) for edge in edges if edge.span_id in workers]


async def test_a_read_that_asks_its_caller_is_one_trace_with_a_span_a_round() -> None:
    """M50: each round is a request of its own below its client's span; the retry's is linked to the former's."""
    async with collector() as receiver, fleet_of(receiver, TRACED) as fleet, client_spans(receiver):
        with trace.get_tracer("test").start_as_current_span("caller") as caller:
            trace_id = f"{caller.get_span_context().trace_id:032x}"
            async with Client(fleet.urls[0], elicitation_callback=fill_in) as client:
                read = await client.read_resource("library://shelf")
        spans = await receiver.wait_for(
            lambda spans: (
                is_whole(mine := of_trace(spans, trace_id)) and len(rounds(mine.values(), "resources/read")) == 2
            )
        )
    assert [each.text for each in read.contents if isinstance(each, TextResourceContents)] == ["shelf of floor 3"]
    mine = of_trace(spans, trace_id)
    [(first, asks), (second, answers)] = rounds(mine.values(), "resources/read")
    assert {mine[each.parent_id].service for each in (first, second)} == {"client"}
    assert (asks.name, answers.name) == (CALL, CALL)
    assert (first.links, second.links) == ((), ((trace_id, first.span_id),))
    assert [span.name for span in mine.values() if not span.parent_id] == ["caller"]
    assert "library://shelf" not in str([span.name for span in mine.values()])


async def test_rounds_of_a_client_that_does_not_trace_are_linked_traces() -> None:
    """M52: what leads from the one to the other travels sealed in the request's state, to any edge."""
    async with collector() as receiver, fleet_of(receiver, TRACED) as fleet:
        state: dict[str, Any] = {}
        for url in fleet.urls:
            async with connected(url) as connection:
                await connection.send("prompts/get", {"name": "guide", "_meta": FORMS, **state})
                result = (await connection.answer()).message["result"]
            accepted = {"floor": {"action": "accept", "content": {"number": 3}}}
            state = {"requestState": result.get("requestState"), "inputResponses": accepted}
        spans = await receiver.wait_for(lambda spans: len(rounds(spans, "prompts/get")) == 2)
    assert result["messages"][0]["content"]["text"] == "Lead me to floor 3"
    [(first, _), (second, _)] = rounds(spans, "prompts/get")
    assert (first.instance, first.trace_id) != (second.instance, second.trace_id)
    assert (first.links, second.links) == ((), ((first.trace_id, first.span_id),))


def tellings(spans: dict[str, Span]) -> list[Span]:
    return [span for span in spans.values() if span.name == HINT]


async def test_what_an_edge_tells_its_streams_is_part_of_the_trace_of_the_change() -> None:
    """One span an edge, however many streams it tells. An edge without a watcher records nothing."""
    async with collector() as receiver, fleet_of(receiver, TRACED) as fleet, client_spans(receiver):
        async with AsyncExitStack() as stack:
            streams = []
            for url in (*fleet.urls, fleet.urls[0]):
                listener = await stack.enter_async_context(Client(url))
                streams.append(await stack.enter_async_context(listener.listen(resource_subscriptions=[NEWS])))
            with trace.get_tracer("test").start_as_current_span("caller") as caller:
                trace_id = f"{caller.get_span_context().trace_id:032x}"
                async with Client(fleet.urls[1]) as client:
                    await client.call_tool("tell", {})
                    await client.call_tool("tell", {})
            for stream in streams:
                assert await anext(stream) == ResourceUpdated(uri=NEWS)
        spans = await receiver.wait_for(
            lambda spans: is_joined(mine := of_trace(spans, trace_id)) and len(tellings(mine)) == 4
        )
    mine = of_trace(spans, trace_id)
    told = tellings(mine)
    assert {(span.service, span.kind) for span in told} == {("edge", "consumer")}
    assert Counter(mine[span.parent_id].name for span in told) == {CALL: 4}
    assert [span.links for span in told] == [((trace_id, span.parent_id),) for span in told]
    assert len({(span.instance, span.parent_id) for span in told}) == 4
    assert NEWS not in str([(span.name, span.attributes) for span in told])


async def test_a_change_of_a_list_is_part_of_the_trace_of_what_made_it() -> None:
    """From the call whose handler declares a tool, by the worker's announcement, to each edge that has the new list."""
    # The client lists the tools after its call: that must not fetch the snapshot before the hint comes.
    lasting = {"MCPFLEET_SNAPSHOT_LASTS": "60"}
    async with (
        collector() as receiver,
        fleet_of(receiver, TRACED, **lasting) as fleet,
        Client(fleet.urls[0]) as listener,
    ):
        async with listener.listen(tools_list_changed=True) as stream:
            async with Client(fleet.urls[1]) as client:
                await client.call_tool("grow", {})
            assert await anext(stream) == ToolsListChanged()
        spans = await receiver.wait_for(lambda spans: len(caused_by(spans, "tools/call grow", LIST_HINT)) == 2)
    told = caused_by(spans, "tools/call grow", LIST_HINT)
    assert len({span.instance for span in told}) == 2
    assert [span.links for span in told] == [((span.trace_id, span.parent_id),) for span in told]
    way = ["tools/call grow", CALL, "announce", "process catalog.announce.{pool}", "sweep", LIST_HINT]
    assert [path(spans, span) for span in told] == [way, way]


def caused_by(spans: Iterable[Span], root: str, name: str) -> list[Span]:
    """The spans of a name that are whole paths from a root of some name."""
    spans = list(spans)
    return [span for span in spans if span.name == name and path(spans, span)[0] == root]


def path(spans: Iterable[Span], span: Span) -> list[str]:
    """The names from a root to a span, as far as they have arrived."""
    by_id = {each.span_id: each for each in spans}
    names = [span.name]
    while (above := by_id.get(span.parent_id)) is not None:
        span = above
        names.insert(0, span.name)
    return names


async def test_a_worker_that_comes_begins_the_trace_of_the_list_that_it_changes() -> None:
    """Nobody called: the announcement is the root. A repeated announcement changes nothing, and is not recorded."""
    again = {"MCPFLEET_ANNOUNCE_INTERVAL": "0.2"}
    async with collector() as receiver, fleet_of(receiver, TRACED, **again) as fleet:
        spans = await receiver.wait_for(lambda spans: any(span.name == "sweep" for span in spans))
        async with Client(fleet.urls[0]) as client:
            await client.call_tool("tell", {})
        spans = await receiver.wait_for(lambda spans: any(span.name == "tools/call tell" for span in spans))
    [swept] = [span for span in spans if span.name == "sweep"]
    assert path(spans, swept) == ["announce", "process catalog.announce.{pool}", "sweep"]
    assert len([span for span in spans if span.name == "announce" and span.status != "error"]) == 1


async def test_where_nobody_records_a_log_line_names_no_trace_that_is_none() -> None:
    """A worker that comes, and what the catalog makes of it."""
    async with Fleet(APP) as fleet:
        lines = [json.loads(line) for line in fleet.logs().splitlines() if line.startswith("{")]
    assert {"announced", "snapshot changed", "ready"} <= {line["event"] for line in lines}
    assert {line["event"] for line in lines if "trace_id" in line} == set()


async def test_what_an_operator_publishes_is_a_trace_that_ends_at_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded where the operator's own environment names a collector."""
    async with collector() as receiver, fleet_of(receiver, TRACED) as fleet, Client(fleet.urls[0]) as listener:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        async with listener.listen(resource_subscriptions=[NEWS]) as stream:
            assert await publish(fleet.nats_settings("operator"), "mcp", [NEWS]) == 0
            assert await anext(stream) == ResourceUpdated(uri=NEWS)
        spans = await receiver.wait_for(lambda spans: caused_by(spans, "publish", HINT))
    [told] = caused_by(spans, "publish", HINT)
    assert told.links == ((told.trace_id, told.parent_id),)
    assert path(spans, told) == ["publish", HINT]


async def test_a_task_and_its_notifications_are_part_of_the_trace_of_its_call() -> None:
    """The run, its step, its end, and the hint of it, which is linked to what changed the task."""
    async with collector() as receiver, fleet_of(receiver, TRACED) as fleet, httpx2.AsyncClient() as http:
        one = TaskClient(http, fleet.urls[0])
        waits = await one.start("wait")
        async with listening(http, fleet.urls[1], capabilities=CAPABLE, taskIds=[waits]) as [stream]:
            await one.until(waits, "input_required")
            await one.update(waits, floor={"number": 3})
            await one.until(waits, "completed")
            spans = await receiver.wait_for(
                lambda spans: any(is_told(spans, each) for each in spans) and has_run(spans)
            )
    assert stream.messages
    [told, *_] = [span for span in spans if is_told(spans, span)]
    mine = of_trace(spans, told.trace_id)
    names = {span.name for span in mine.values()}
    assert {"process tasks.create", "process tasks.pool.{pool}.settle"} <= names
    [call] = [span for span in mine.values() if not span.parent_id]
    runs = [span for span in mine.values() if span.name == CALL]
    assert [run.links for run in runs] == [((call.trace_id, call.span_id),)] * 2  # before the answer, and after
    assert told.links == ((told.trace_id, told.parent_id),)


def has_run(spans: Sequence[Span]) -> bool:
    """Whether both runs have arrived, that before the answer and that after it, and what they belong to."""
    runs = [span for span in spans if span.name == CALL]
    return len(runs) == 2 and is_joined(of_trace(spans, runs[0].trace_id))


def is_told(spans: Iterable[Span], span: Span) -> bool:
    """Whether a stream was told of a task's end."""
    above = [each.name for each in spans if each.span_id == span.parent_id]
    return span.name == "process hint.task.{key}" and above == ["process tasks.pool.{pool}.settle"]


@pytest.mark.rule("invariant 9")
async def test_spans_carry_the_names_of_the_conventions() -> None:
    """OpenTelemetry's conventions for MCP and for messaging; nothing of the arguments (invariant 9)."""
    async with collector() as receiver, fleet_of(receiver) as fleet:
        async with Client(fleet.urls[0]) as client:
            await client.call_tool("refuse", {"why": "a secret reason"})
        spans = await receiver.wait_for(
            lambda spans: {"tools/call refuse", CALL} <= {span.name for span in spans},
        )
    [worker] = [span for span in spans if span.name == CALL]
    [edge] = [span for span in spans if span.span_id == worker.parent_id]
    assert edge.attributes["mcp.method.name"] == "tools/call"
    assert edge.attributes["gen_ai.tool.name"] == "refuse"
    assert edge.attributes["gen_ai.operation.name"] == "execute_tool"
    assert edge.attributes["mcp.protocol.version"] == "2026-07-28"
    assert edge.attributes["network.transport"] == "tcp"
    assert worker.attributes["messaging.system"] == "nats"
    assert worker.attributes["messaging.destination.template"] == "pool.{pool}.{definition}.call"
    assert (worker.status, worker.attributes["error.type"]) == ("error", "tool_error")
    assert (edge.status, edge.attributes["error.type"]) == ("error", "tool_error")
    assert "secret" not in str(spans)


@pytest.mark.rule("invariant 10")
async def test_the_edge_decides_what_is_recorded() -> None:
    """A ratio of 0 records nothing, whatever flag a caller sends from a network that is not trusted."""
    async with collector() as receiver, fleet_of(receiver, MCPFLEET_SAMPLE_RATIO="0") as fleet:
        async with client_spans(receiver):
            with trace.get_tracer("test").start_as_current_span("caller"):
                async with Client(fleet.urls[0]) as client:
                    await client.call_tool("add", {"left": 1, "right": 2})
        spans = await receiver.wait_for(lambda spans: any(span.name == "caller" for span in spans))
        assert {span.service for span in spans} == {"client"}
