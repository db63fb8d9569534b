"""A process tells each ended call once: by tool, with its duration, in messages of bounded size."""

from __future__ import annotations

from mcpfleet.bus.service import bus_of
from mcpfleet.console.ended_calls import EndedCalls
from mcpfleet.console.history import quantile
from mcpfleet.console.stats import collect_stats
from mcpfleet.contracts.stats import LONGEST_TOOL, MOST_BYTES, MOST_TIMED, CallTimes
from mcpfleet.process.recent_errors import recent_errors
from mcpfleet.process.service import Process
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.telemetry.instruments import EdgeInstruments, WorkerInstruments
from mcpfleet.telemetry.metrics import Metrics

ROOM = 10_000


def told(ended: EndedCalls, metrics: Metrics, room: int = ROOM) -> tuple[CallTimes, ...]:
    return ended.take(metrics.read(finely=True), room)


def called(edge: EdgeInstruments, tool: str, seconds: float = 0.01, error: str = "", version: str = "v") -> None:
    edge.operation_duration.record(seconds, "tools/call", tool, version, error)


def test_a_call_is_told_once_with_those_of_all_revisions_and_its_failure() -> None:
    metrics, ended = Metrics(), EndedCalls()
    edge = EdgeInstruments(metrics)
    called(edge, "search", 0.0042)
    called(edge, "search", 0.0042, version="2025-11-25")
    called(edge, "search", 0.1, error="-32603")
    [search] = told(ended, metrics)
    assert (search.method, search.tool, sum(search.counts), search.failed) == ("tools/call", "search", 3, 1)
    p50 = quantile((0,) * search.first + search.counts, 0.5)
    assert p50 is not None
    assert 0.004 <= p50 <= 0.005
    assert told(ended, metrics) == ()
    called(edge, "search")
    assert [sum(each.counts) for each in told(ended, metrics)] == [1]


def test_a_stream_has_no_duration() -> None:
    metrics = Metrics()
    EdgeInstruments(metrics).operation_duration.record(3_000, "subscriptions/listen", "", "v", "")
    assert told(EndedCalls(), metrics) == ()


def test_a_worker_tells_its_handlers() -> None:
    metrics = Metrics()
    WorkerInstruments(metrics).handler_duration.record(0.5, "library://books/{id}" + "x" * 500, "")
    [handler] = told(EndedCalls(), metrics)
    assert (handler.method, handler.tool[:8], len(handler.tool)) == ("", "library:", LONGEST_TOOL)


def test_calls_that_wait_are_told_with_their_tool_though_none_has_ended() -> None:
    metrics, ended = Metrics(), EndedCalls()
    edge = EdgeInstruments(metrics)
    edge.queue_tools.add(3, "search")
    edge.queue_tools.add(1, "")
    assert told(ended, metrics) == (CallTimes(method="tools/call", tool="search", waiting=3),)
    edge.queue_tools.add(-3, "search")
    assert told(ended, metrics) == ()


def test_calls_without_room_in_one_message_are_in_the_next() -> None:
    metrics, ended = Metrics(), EndedCalls()
    edge = EdgeInstruments(metrics)
    for number in range(MOST_TIMED + 10):
        called(edge, f"tool{number}")
    first, second = told(ended, metrics), told(ended, metrics)
    assert (len(first), len(second)) == (MOST_TIMED, 10)
    called(edge, "late")
    assert told(ended, metrics, room=10) == ()
    assert [each.tool for each in told(ended, metrics)] == ["late"]


def test_a_message_is_never_too_long_to_be_read() -> None:
    """The errors, conditions and calls of a process in great trouble leave room for each other."""
    process, ended = Process("edge", ProcessSettings()), EndedCalls()
    edge = EdgeInstruments(process.telemetry.metrics)
    for number in range(60):
        process.health.set(f"condition{number}", False, "\x01" * 500)
        called(edge, f"{number}" + "é" * 120, seconds=0.0001 * number)
        event = {"level": "error", "process": process.id, "event": "\x01" * 300, "tool": "\x01" * 300}
        recent_errors(None, "", event)
    names, bus = list[str](), bus_of(process, "edge")
    for _ in range(20):
        stats = collect_stats(process, bus, ended)
        assert len(stats.model_dump_json().encode()) <= MOST_BYTES
        names += [each.tool for each in stats.calls]
    assert len(set(names)) == 60
