"""The stats of a process: its own metrics in few numbers, within the contract's bounds, and no secret."""

from __future__ import annotations

import pytest

from mcpfleet.bus.service import bus_of
from mcpfleet.console.ended_calls import EndedCalls
from mcpfleet.console.stats import RULES, collect_stats, numbers_of
from mcpfleet.contracts.stats import LARGEST, Role, Sender, pool_stats_subject, sender_of, service_stats_subject
from mcpfleet.process.service import Process
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.telemetry.instruments import EdgeInstruments, TasksInstruments
from mcpfleet.telemetry.metrics import Metrics, usage
from tests.deploy.figures import every_instrument

ID = "0123456789abcdef"


def test_requests_are_counted_and_those_that_failed_beside_them() -> None:
    metrics = Metrics()
    edge = EdgeInstruments(metrics)
    edge.operation_duration.record(0.1, "tools/call", "search", "2026-07-28", "")
    edge.operation_duration.record(0.2, "tools/list", "", "2026-07-28", "")
    edge.operation_duration.record(0.1, "tools/call", "search", "2026-07-28", "-32603")
    numbers = numbers_of(metrics.read())
    assert (numbers["requests"], numbers["failures"]) == (3, 1)


def test_tasks_are_told_by_state_and_by_how_they_ended() -> None:
    metrics = Metrics()
    tasks = TasksInstruments(metrics)
    tasks.tasks.set(4, "ready")
    tasks.ended.add(1, "failed", "lost")
    tasks.ended.add(2, "failed", "timeout")
    numbers = numbers_of(metrics.read())
    assert (numbers["tasks_ready"], numbers["tasks_ended_failed"]) == (4, 3)


def test_every_rule_is_of_a_metric_that_there_is_with_its_labels() -> None:
    known = {family.name: family for family in [*every_instrument().read(), *usage()]}
    for rule in RULES:
        assert {rule.having, rule.by} - {""} <= set(known[rule.metric].labels), rule


def test_a_process_says_what_it_lacks_without_passwords_and_within_bounds() -> None:
    process = Process("tasks", ProcessSettings())
    process.health.set("store", False, "no answer of postgresql://me:hunter2@db/tasks " + "x" * 500)
    process.telemetry.metrics.gauge("mcpfleet.edge.queued", "Out of bounds.").set(-1)
    process.telemetry.metrics.gauge("mcpfleet.edge.streams.open", "Out of bounds.").set(1e300)
    said = collect_stats(process, bus_of(process, "tasks"), EndedCalls())
    [lack] = said.lacks
    assert lack.why.startswith("no answer of postgresql://me:***@db/tasks xxx")
    assert len(lack.why) == 200
    assert (said.ready, said.numbers["queued"], said.numbers["streams"]) == (False, 0, LARGEST)


@pytest.mark.parametrize(
    ("subject", "who"),
    [
        (service_stats_subject(Role.EDGE, ID), Sender("edge", "", ID)),
        (pool_stats_subject("library", ID), Sender("worker", "library", ID)),
        (f"figures.edge.{ID[:-1]}", None),
        (f"figures.edge.{ID}.more", None),
        (f"figures.worker.{ID}", None),
        (f"figures.operator.{ID}", None),
        (f"figures.pool.edge.{ID}\n", None),
    ],
)
def test_the_subject_says_who_speaks(subject: str, who: Sender | None) -> None:
    """A pool may have a service's name, and is a pool all the same."""
    assert sender_of(subject) == who
    assert sender_of(pool_stats_subject("tasks", ID)) == Sender("worker", "tasks", ID)
