"""A console keeps 15 minutes of calls and durations, within bounds, and says where it heard nothing."""

from __future__ import annotations

import json

import pytest

from mcpfleet.console.history import MOST_TOOLS, POINTS, RECENT, STEP, History, Series, ToolKey, quantile
from mcpfleet.contracts.stats import EVERY, MOST_BUCKETS, CallTimes, Sender, Stats
from mcpfleet.telemetry.instruments import FINE_BOUNDS
from tests.unit.console.samples import NOW, edge, ended, says, worker

SEARCH = ToolKey("tools/call", "search")


def heard_for(history: History, seconds: float, *calls: CallTimes, sender: Sender | None = None) -> float:
    """Let a process say the same every two seconds; return when it spoke last."""
    now, before = NOW, None
    while now < NOW + seconds:
        history.hear(sender or edge(), says(calls=calls), before, now)
        before, now = now, now + EVERY
    return now - EVERY


@pytest.mark.parametrize("seconds", [0.00015, 0.0042, 0.03, 0.7, 4, 45, 250])
@pytest.mark.parametrize("share", [0.5, 0.95])
def test_a_quantile_is_within_a_quarter_of_the_true_one(seconds: float, share: float) -> None:
    found = quantile(ended(*[seconds] * 100).counts, share)
    assert found is not None
    assert seconds / 1.26 <= found <= seconds * 1.26


def test_half_of_the_calls_are_as_fast_as_p50_and_95_of_100_as_fast_as_p95() -> None:
    counts = ended(*[0.001] * 90, *[1.0] * 10).counts
    p50, p95 = quantile(counts, 0.5), quantile(counts, 0.95)
    assert p50 is not None
    assert p95 is not None
    assert p50 <= 0.001
    assert 0.8 <= p95 <= 1.0


def test_there_is_no_quantile_without_calls_and_the_last_bound_stands_for_longer_ones() -> None:
    assert quantile((), 0.5) is None
    assert quantile(ended().counts, 0.5) is None
    assert quantile(ended(1e6).counts, 0.5) == FINE_BOUNDS[-1]


def test_a_steady_rate_is_a_steady_line() -> None:
    """Messages do not fall on the steps' ends: a message's calls are spread over the time that it tells of."""
    history = History()
    now = heard_for(history, 200, ended(0.01, 0.01, 0.01, 0.01))
    rates = [rate for rate in history.fleet.chart(now, history.began, history.fleet)["rate"] if rate is not None]
    assert len(rates) >= 15
    assert rates == pytest.approx([2.0] * len(rates))
    assert history.fleet.recent(now, history.began)["rate"] == pytest.approx(2.0)


def test_a_chart_has_gaps_where_nothing_was_heard_and_zero_where_nothing_was_called() -> None:
    history = History()
    now = heard_for(history, 60)
    history.hear(edge(), says(calls=(ended(0.01),)), now, now + 100)
    chart = history.fleet.chart(NOW + 178, history.began, history.fleet)
    assert {name: len(line) for name, line in chart.items()} == dict.fromkeys(chart, POINTS)
    assert chart["rate"][-17:] == [*[0.0] * 6, *[None] * 9, 0.1, None]
    assert chart["rate"][:-17] == [None] * (POINTS - 17)
    assert [value is None for value in chart["p50"][-3:]] == [True, False, True]


def test_a_tool_that_is_not_called_has_zeros_while_edges_are_heard() -> None:
    history = History()
    history.hear(edge(), says(calls=(ended(0.01),)), None, NOW)
    before = NOW
    for turn in range(1, 31):
        history.hear(edge(), says(), before, NOW + turn * EVERY)
        before = NOW + turn * EVERY
    tool = history.tool(SEARCH)
    assert tool is not None
    assert tool.chart(before, history.began, history.fleet)["rate"][-3:] == [0.0, 0.0, 0.0]
    assert history.tools(before + STEP * POINTS + STEP) == []


def test_old_steps_keep_their_quantiles_and_older_ones_go() -> None:
    series = Series()
    for step in range(POINTS + 40):
        series.add(step * STEP, step * STEP + 1, ended(0.1, 0.1))
    assert len(series._steps) <= POINTS + 3
    assert sum(1 for step in series._steps.values() if step.counts is not None) <= RECENT + 3
    chart = series.chart((POINTS + 40) * STEP, 0, series)
    assert None not in chart["p95"][:-1]


def test_workers_speak_for_themselves_alone() -> None:
    """Invariant 13: a worker that is taken over could name any tool."""
    history = History()
    history.hear(worker(), says(calls=(ended(0.01),)), None, NOW)
    assert history.tools(NOW) == []
    assert history.fleet.recent(NOW, history.began)["rate"] == 0
    assert history.process(worker()).recent(NOW, history.began)["rate"] == pytest.approx(1 / EVERY)


def test_calls_that_wait_at_two_edges_are_added_for_the_fleet_and_for_their_tool() -> None:
    """Each step has the most that waited at once; an edge also counts what is no call of a tool."""
    history = History()
    for process, waiting, queued in (("1" * 16, 2, 3), ("2" * 16, 5, 5), ("1" * 16, 1, 1)):
        told = ended(0.1).model_copy(update={"waiting": waiting})
        history.hear(edge(process), says({"queued": queued}, calls=(told,)), None, NOW + 2)
    tool = history.tool(SEARCH)
    assert tool is not None
    for series, expected in ((history.fleet, 8), (tool, 7), (history.process(edge("1" * 16)), 3)):
        assert series.chart(NOW + 12, history.began, history.fleet)["waiting"][-1] == expected


def test_lists_are_no_calls_of_the_fleet_and_have_a_row() -> None:
    history = History()
    history.hear(edge(), says(calls=(ended(0.01, tool="", method="tools/list"),)), None, NOW)
    assert [key for key, _ in history.tools(NOW)] == [ToolKey("tools/list", "")]
    assert history.fleet.recent(NOW, history.began)["rate"] == 0


def test_so_many_tools_are_kept_and_the_ones_called_last_win() -> None:
    history = History()
    for number in range(MOST_TOOLS + 1):
        history.hear(edge(), says(calls=(ended(0.01, tool=f"t{number}"),)), None, NOW + number / 1000)
    kept = {key.tool for key, _ in history.tools(NOW)}
    assert len(kept) == MOST_TOOLS
    assert "t0" not in kept
    assert history.has_dropped


def test_processes_that_are_gone_are_dropped() -> None:
    history = History()
    heard_for(history, 10, ended(0.1))
    history.keep([])
    assert history.process(edge()).last_heard() == -1


def test_a_lie_of_any_size_is_kept_within_the_buckets() -> None:
    """A message may name buckets beyond the last, more failures than calls, and the largest counts."""
    history = History()
    lie = CallTimes(tool="x", first=MOST_BUCKETS - 1, counts=(10**9,) * MOST_BUCKETS, failed=10**9)
    for turn in range(40):
        history.hear(worker(), says(calls=(lie,) * 40), NOW + turn, NOW + turn + 1)
    series = history.process(worker())
    assert series.recent(NOW + 40, history.began)["failures"] == 0
    json.dumps(series.chart(NOW + 100, history.began, series), allow_nan=False)


def test_bounds_of_durations_never_change() -> None:
    """Processes of other releases count in the same buckets."""
    assert len(FINE_BOUNDS) + 1 <= MOST_BUCKETS
    assert FINE_BOUNDS[:11] == (
        0.0001,
        0.000125,
        0.00016,
        0.0002,
        0.00025,
        0.00032,
        0.0004,
        0.0005,
        0.00063,
        0.0008,
        0.001,
    )
    assert FINE_BOUNDS[47:] == (5, 6.3, 8, 10, 12.5, 16, 20, 25, 30, 40, 50, 60, 80, 100, 120, 160, 200, 250, 300)
    assert len(FINE_BOUNDS) == 66
    assert Stats(started=0, ready=True).calls == ()
