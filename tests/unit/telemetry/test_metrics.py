"""Metrics, and their forms for Prometheus and a collector."""

import sys
import threading
import time

import pytest

from mcpfleet.telemetry import metrics as module
from mcpfleet.telemetry.exposition import Exposition
from mcpfleet.telemetry.instruments import (
    OPERATION_BOUNDS,
    BusInstruments,
    CatalogInstruments,
    EdgeInstruments,
    WorkerInstruments,
)
from mcpfleet.telemetry.metrics import OVERFLOW, Metrics, Point


def samples(exposition: Exposition, name: str) -> list[str]:
    """The lines of one name, without comments."""
    return [line for line in exposition.text().decode().splitlines() if line.startswith(name)]


def test_a_histogram_counts_by_inclusive_bounds() -> None:
    """A value equal to a bound belongs to that bound's bucket, as Prometheus' `le` says."""
    histogram = Metrics().histogram("d", "", (0.1, 1), unit="s", labels=("tool",))
    for value in (0.05, 0.1, 0.5, 7):
        histogram.record(value, "search")
    assert histogram.read().points == (Point(("search",), 7.65, (2, 1, 1)),)


@pytest.mark.rule("T24")
def test_a_metric_that_cannot_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """A scrape gets the others, and the log says what is missing."""
    metrics = Metrics()
    gauge = metrics.gauge("g", "", labels=("pool",))
    gauge.observe(lambda: 1 / 0, "bad")
    gauge.observe(lambda: 7, "good")
    metrics.counter("c", "").add(3)
    assert [family.points for family in metrics.read()] == [(Point(("good",), 7),), (Point((), 3),)]
    assert "metric not read: g" in caplog.text


def test_a_counter_without_labels_begins_at_zero() -> None:
    """Else the first event would be no increase for whoever watches the rate."""
    counter = Metrics().counter("c", "")
    assert counter.read().points == (Point((), 0),)


def test_a_gauge_is_set_moved_read_and_forgotten() -> None:
    """All four ways to keep a value current."""
    gauge = Metrics().gauge("g", "", labels=("pool",))
    gauge.set(3, "a")
    gauge.add(-1, "a")
    gauge.add(1, "b")
    gauge.observe(lambda: 9, "c")
    gauge.forget("b")
    assert gauge.read().points == (Point(("a",), 2), Point(("c",), 9))


@pytest.mark.rule("invariant 7")
def test_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 7: label sets over the limit are counted together, and nothing is lost from the sum."""
    monkeypatch.setattr(module, "SERIES_LIMIT", 2)
    counter = Metrics().counter("c", "", labels=("tool",))
    for name in ("a", "b", "c", "d", "a"):
        counter.add(1, name)
    assert counter.read().points == (Point(("a",), 2), Point(("b",), 1), Point((OVERFLOW,), 2))


def test_wrong_labels_are_an_error_that_names_the_instrument() -> None:
    """A forgotten label is a mistake in the code, found by its first use."""
    counter = Metrics().counter("edge.calls", "", labels=("outcome",))
    with pytest.raises(ValueError, match=r"edge\.calls"):
        counter.add(1)


def test_a_name_is_taken_once() -> None:
    """Two instruments of one name would hide one another."""
    metrics = Metrics()
    metrics.counter("c", "")
    with pytest.raises(ValueError, match="two instruments named c"):
        metrics.gauge("c", "")


def test_threads_lose_no_count() -> None:
    """A worker counts on the loop of its bus and on that of its handlers."""
    metrics = Metrics()
    counter, histogram = metrics.counter("c", ""), metrics.histogram("h", "", (1,), labels=("x",))

    def work() -> None:
        for _ in range(5000):
            counter.add(1)
            histogram.record(0.5, "y")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.read().points == (Point((), 20000),)
    assert histogram.read().points == (Point(("y",), 10000, (20000, 0)),)


def test_prometheus_sees_names_units_and_services() -> None:
    """Several services share a page: a name stands once, and each sample says whose it is."""
    one, other = Metrics(), Metrics()
    for metrics, count in ((one, 1), (other, 2)):
        edge = EdgeInstruments(metrics)
        edge.rejections.add(count, "400", "-32602")
        edge.operation_duration.record(0.3, "tools/call", "search", "2026-07-28", "")
    exposition = Exposition({"edge": one, "second": other})
    assert samples(exposition, "mcpfleet_edge_rejections_total") == [
        'mcpfleet_edge_rejections_total{service="edge",status="400",code="-32602"} 1',
        'mcpfleet_edge_rejections_total{service="second",status="400",code="-32602"} 2',
    ]
    text = exposition.text().decode()
    assert text.count("# TYPE mcp_server_operation_duration_seconds histogram") == 1
    buckets = samples(exposition, "mcp_server_operation_duration_seconds_bucket")
    assert [line.rsplit(" ", 1)[1] for line in buckets if 'service="edge"' in line] == ["0"] * 5 + ["1"] * 10


def test_the_text_is_of_prometheus_format() -> None:
    """Help and type once a name, cumulative buckets up to +Inf, sum and count; label values are escaped."""
    metrics = Metrics()
    metrics.histogram("wait", "Waits.", (0.1, 1), unit="s", labels=("pool",)).record(0.5, 'a"b\\c\nd')
    text = Exposition({"edge": metrics}).text().decode()
    labels = r'service="edge",pool="a\"b\\c\nd"'
    assert text.splitlines()[:7] == [
        "# HELP wait_seconds Waits.",
        "# TYPE wait_seconds histogram",
        f'wait_seconds_bucket{{{labels},le="0.1"}} 0',
        f'wait_seconds_bucket{{{labels},le="1"}} 1',
        f'wait_seconds_bucket{{{labels},le="+Inf"}} 1',
        f"wait_seconds_sum{{{labels}}} 0.5",
        f"wait_seconds_count{{{labels}}} 1",
    ]
    assert text.endswith("\n")


def test_prometheus_sees_what_the_process_uses() -> None:
    """Under the names that dashboards know."""
    lines = Exposition({}).text().decode().splitlines()
    values = dict(line.split(" ") for line in lines if not line.startswith("#"))
    assert float(values["process_cpu_seconds_total"]) > 0
    assert float(values["process_start_time_seconds"]) <= time.time()
    assert float(values["process_max_fds"]) > 0
    if sys.platform == "linux":
        assert float(values["process_resident_memory_bytes"]) > 1 << 20
        assert float(values["process_open_fds"]) >= 3


def test_all_instruments_fit_in_one_registry() -> None:
    """No two services use one name for two things; labels hold no id and no caller's text."""
    metrics = Metrics()
    for instruments in (EdgeInstruments, WorkerInstruments, BusInstruments, CatalogInstruments):
        instruments(metrics)
    labels = {label for family in metrics.read() for label in family.labels}
    by_convention = {"mcp.method.name", "gen_ai.tool.name", "mcp.protocol.version", "error.type"}
    assert labels == by_convention | {"status", "code", "pool", "endpoint"}


def test_a_histogram_may_count_in_finer_buckets_than_it_exports() -> None:
    """Both forms have the same values; a bound belongs to its bucket in both."""
    metrics = Metrics()
    histogram = metrics.histogram("d", "", (0.1, 1), finer=(0.05, 0.1, 0.5, 1, 2))
    for value in (0.05, 0.06, 0.1, 0.11, 1, 1.5, 3):
        histogram.record(value)
    assert [family.points[0].buckets for family in metrics.read()] == [(3, 2, 2)]
    assert [family.points[0].buckets for family in metrics.read(finely=True)] == [(1, 2, 1, 1, 1, 1)]
    assert histogram.read().bounds == (0.1, 1)


def test_every_exported_bound_is_among_the_finer_ones() -> None:
    with pytest.raises(ValueError, match="tuple"):
        Metrics().histogram("d", "", (0.1, 1), finer=(0.1, 2))
    exported = EdgeInstruments(Metrics()).operation_duration.read().bounds
    assert exported == OPERATION_BOUNDS
