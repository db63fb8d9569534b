"""The views of one process and one tool, by the queries of their addresses."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from mcpfleet.console.history import History, ToolKey
from mcpfleet.console.nodes import Node
from mcpfleet.console.overview import overview
from mcpfleet.console.own_views import View, own_view, view_of
from mcpfleet.contracts.stats import LONGEST_TOOL, ReportedError, Sender, Stats
from tests.unit.console.samples import NOW, edge, ended, node, says, worker

TRACE = "ab" * 16
SEARCH = ToolKey("tools/call", "search")


def seen(view: View, *nodes: Node) -> Any:
    """A view of processes that have each published once."""
    history = History()
    for each in nodes:
        history.hear(each.sender, each.stats, None, each.heard)
    return json.loads(json.dumps(own_view(view, nodes, history, NOW, jaeger="https://jaeger"), allow_nan=False))


def failed(of: str) -> ReportedError:
    return ReportedError(at=1, level="error", event="handler failed", of=of, trace=TRACE, sampled=True)


@pytest.mark.parametrize(
    ("query", "view"),
    [
        ({}, None),
        ({"other": "x"}, None),
        ({"tool": "a/b c&<é"}, ToolKey("tools/call", "a/b c&<é")),
        ({"method": "tools/list"}, ToolKey("tools/list", "")),
        ({"role": "edge", "process": "e" * 16}, Sender("edge", "", "e" * 16)),
        ({"pool": "edge", "process": "e" * 16}, Sender("worker", "edge", "e" * 16)),
        ({"tool": "x" * 1000}, ToolKey("tools/call", "x" * LONGEST_TOOL)),
    ],
)
def test_a_query_names_a_view(query: dict[str, str], view: View | None) -> None:
    assert view_of(urlencode(query).encode()) == view


@pytest.mark.parametrize("query", [b"\xff=1", b"tool", b"&&&", b"tool=%ff&process"])
def test_a_query_of_no_form_is_no_error(query: bytes) -> None:
    assert view_of(query) in (None, ToolKey("tools/call", "�"))


def test_a_tool_is_shown_as_all_edges_tell_it() -> None:
    stats = says(calls=(ended(0.1, 0.1).model_copy(update={"waiting": 2}),))
    found = seen(SEARCH, node(edge("1" * 16), stats), node(edge("2" * 16), stats))["found"]
    assert (found["rate"], found["waiting"], found["failures"]) == (2.0, 4, 0)
    assert 0.08 <= found["p50"] <= found["p95"] <= 0.1


def test_a_tools_view_has_its_own_errors_with_their_traces() -> None:
    troubles = (failed("tool=search"), failed("tool=searching"), failed("pool=x tool=search"))
    found = seen(SEARCH, node(edge(), says(calls=(ended(0.1),))), node(worker(), says(troubles=troubles)))["found"]
    assert {each["of"] for each in found["troubles"]} == {"pool=x tool=search", "tool=search"}
    assert {each["link"] for each in found["troubles"]} == {f"https://jaeger/trace/{TRACE}"}


def test_a_process_is_shown_with_its_queue_its_errors_and_nobody_elses() -> None:
    stats = says({"queued": 3}, calls=(ended(0.1, failed=1),), troubles=(failed("endpoint=mcp"),))
    found = seen(edge(), node(edge(), stats), node(worker(), says(troubles=(failed("tool=x"),))))["found"]
    assert (found["who"], found["queued"], found["rate"], found["failures"]) == ("edge eeee", 3, 0.5, 0.5)
    assert [each["of"] for each in found["troubles"]] == ["endpoint=mcp"]
    assert [each["what"] for each in found["stuck"]] == ["calls that wait for room in a pool: 3"]


def test_a_process_that_is_silent_says_for_how_long() -> None:
    assert seen(edge(), node(edge(), heard=NOW - 20))["found"]["silence"] == 20


@pytest.mark.parametrize("view", [edge(), worker(), SEARCH, Sender("edge", "", "f" * 16)])
def test_what_was_not_heard_is_not_found(view: View) -> None:
    """A pool that has a service's name is not that service."""
    assert seen(view, node(worker("e" * 16, pool="edge")))["found"] is None


def test_the_overview_has_a_row_for_each_tool_and_points_for_the_charts() -> None:
    history = History()
    stats: Stats = says(calls=(ended(0.1), ended(0.2, tool="", method="tools/list")))
    history.hear(edge(), stats, None, NOW)
    found = overview([node(edge(), stats)], history, NOW, jaeger="")
    assert [(each["method"], each["tool"]) for each in found["tools"]] == [("tools/call", "search"), ("tools/list", "")]
    assert found["charts"]["step"] == 10
    assert found["nodes"][0]["p95"] is not None
