"""The page shows totals, tasks by state, stuck work, and errors with their traces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpfleet.console.history import History
from mcpfleet.console.nodes import Node
from mcpfleet.console.overview import MOST_ALIKE, MOST_TROUBLES_ALIKE, overview
from mcpfleet.contracts.stats import LARGEST, MOST_ERRORS, ReportedError, Sender, Stats, UnmetCondition
from tests.unit.console.samples import NOW, edge, node, says, tasks, worker

TRACE = "ab" * 16
SILENT = NOW - 20


def drawn(*nodes: Node, jaeger: str = "") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(overview(nodes, History(), NOW, jaeger=jaeger), allow_nan=False))
    return found


def trouble(at: float = 1.0, **fields: Any) -> ReportedError:
    return ReportedError(**{"at": at, "level": "error", "event": "handler failed", **fields})


def test_totals_are_of_the_processes_that_are_heard() -> None:
    totals = drawn(
        node(edge("1" * 16), says({"streams": 2, "running": 1}), requests=1.5, hints=4, told=1),
        node(edge("2" * 16), says({"streams": 3, "queued": 1}), requests=2, hints=3, failures=0.5),
        node(edge("3" * 16), says({"streams": 100}), heard=SILENT, requests=9),
        node(worker(), says({"slots": 8, "slots_used": 2})),
    )["totals"]
    assert totals == {
        "processes": 3, "requests": 3.5, "failures": 0.5, "running": 1, "queued": 1, "streams": 5,
        "hints": 4, "told": 1, "slots": 8, "slots_used": 2,
    }  # fmt: skip


def test_tasks_that_are_there_are_counted_once_and_those_that_went_by_are_added() -> None:
    """Each replica counts the one table, and itself claims and ends some."""
    seen = drawn(
        node(tasks("1" * 16), says({"tasks_ready": 5, "tasks_held": 1, "tasks_made": 4, "tasks_ended_completed": 2})),
        node(tasks("2" * 16), says({"tasks_ready": 4, "tasks_held": 2, "tasks_made": 3, "tasks_ended_failed": 1})),
        # A worker that speaks of tasks is not asked.
        node(worker(), says({"tasks_ready": 99, "tasks_ended_lies": 1})),
    )
    assert seen["tasks"] == {"ready": 5, "held": 2, "made": 7, "claimed": 0, "lapsed": 0, "completed": 2, "failed": 1}


@pytest.mark.parametrize(
    ("stats", "heard", "state"),
    [
        (says(), NOW, "ready"),
        (says(ready=False), NOW, "not ready"),
        (says(ready=False, stopping=True), NOW, "stopping"),
        (says(), SILENT, "silent"),
    ],
)
def test_a_process_has_one_state(stats: Stats, heard: float, state: str) -> None:
    assert drawn(node(edge(), stats, heard=heard))["nodes"][0]["state"] == state


LACK = UnmetCondition(name="nats", why="no link")


@pytest.mark.parametrize(
    ("sender", "stats", "heard", "what"),
    [
        (edge(), says(), SILENT, "no report for 20 s"),
        (edge(), says(ready=False, lacks=(LACK,)), NOW, "not ready: nats: no link"),
        (edge(), says({"queued": 3}), NOW, "calls that wait for room in a pool: 3"),
        (edge(), says({"refusals": 1}), NOW, "subjects that NATS has refused it since its start: 1"),
        (worker(), says({"slots": 4, "slots_used": 4}), NOW, "all its slots are in use: 4"),
    ],
)
def test_what_is_stuck_is_said_in_words(sender: Sender, stats: Stats, heard: float, what: str) -> None:
    stuck = drawn(node(sender, stats, heard=heard), node(worker("9" * 16)))["stuck"]
    assert [each["what"] for each in stuck] == [what]


def test_a_process_that_stops_is_not_stuck() -> None:
    assert drawn(node(edge(), says(ready=False, stopping=True, lacks=(LACK,))), node(worker()))["stuck"] == []


def test_tasks_wait_in_vain_where_none_is_claimed() -> None:
    waiting = says({"tasks_ready": 2})
    assert drawn(node(tasks(), waiting), node(worker()))["stuck"] == [
        {"who": "the fleet", "what": "waiting tasks that no worker takes: 2"}
    ]
    assert drawn(node(tasks(), waiting, tasks_claimed=0.5), node(worker()))["stuck"] == []


def test_a_fleet_without_workers_is_stuck() -> None:
    assert drawn(node(edge()))["stuck"] == [{"who": "the fleet", "what": "no worker is heard"}]


@pytest.mark.parametrize(
    ("jaeger", "fields", "link"),
    [
        ("https://jaeger", {"trace": TRACE, "sampled": True}, f"https://jaeger/trace/{TRACE}"),
        ("https://jaeger", {"trace": TRACE}, ""),
        ("https://jaeger", {}, ""),
        ("", {"trace": TRACE, "sampled": True}, ""),
    ],
)
def test_a_trace_is_a_link_where_it_is_recorded(jaeger: str, fields: dict[str, Any], link: str) -> None:
    [shown] = drawn(node(edge(), says(troubles=(trouble(**fields),))), jaeger=jaeger)["troubles"]
    assert (shown["link"], shown["trace"]) == (link, fields.get("trace", ""))


def test_a_pool_that_cries_hides_nobody() -> None:
    """A worker that is taken over may say any number of errors, of any time."""
    crowd = [
        node(worker(f"{number:016x}"), says(troubles=(trouble(LARGEST),) * MOST_ERRORS, lacks=(LACK,), ready=False))
        for number in range(50)
    ]
    seen = drawn(node(edge(), says(troubles=(trouble(5),))), *crowd, node(worker(pool="other"), says({"slots": 0})))
    who = [each["who"] for each in seen["troubles"]]
    assert who.count("edge eeee") == 1
    assert len(who) == 1 + MOST_TROUBLES_ALIKE
    assert len(seen["stuck"]) == MOST_ALIKE


def test_the_largest_numbers_are_still_numbers_for_json() -> None:
    crowd = [node(worker(f"{number:016x}"), says({"slots": LARGEST}), handled=LARGEST) for number in range(300)]
    assert drawn(*crowd)["totals"]["slots"] == 300 * LARGEST
