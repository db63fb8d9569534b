"""Collects the stats of a process from what it counts anyway."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from mcpfleet.bus.bus import Bus, Subscription
from mcpfleet.console.ended_calls import EndedCalls
from mcpfleet.contracts.stats import (
    LARGEST,
    LONGEST_NAME,
    LONGEST_TEXT,
    MOST_BYTES,
    MOST_ERRORS,
    MOST_LACKS,
    MOST_NUMBERS,
    ReportedError,
    Stats,
    UnmetCondition,
)
from mcpfleet.process.logs import without_passwords
from mcpfleet.process.recent_errors import RecentError, recent_errors
from mcpfleet.process.service import Process
from mcpfleet.telemetry.metrics import STARTED, Family, Point, usage
from mcpfleet.telemetry.names import ERROR_TYPE

_VERSION: Final = version("mcpfleet")
"""Read once: it stands in a file."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Makes one number of a metric: the sum over its label sets; for a histogram, the number of records."""

    number: str
    metric: str
    having: str = ""
    """Counts only label sets in which this label is not empty."""
    by: str = ""
    """Makes one number for each value of this label, which is appended to the number's name."""


RULES: Final = (
    Rule("requests", "mcp.server.operation.duration"),
    Rule("failures", "mcp.server.operation.duration", having=ERROR_TYPE),
    Rule("running", "mcpfleet.edge.calls.running"),
    Rule("queued", "mcpfleet.edge.queued"),
    Rule("streams", "mcpfleet.edge.streams.open"),
    Rule("told", "mcpfleet.edge.streams.told"),
    Rule("slots", "mcpfleet.worker.slots"),
    Rule("slots_used", "mcpfleet.worker.slots.used"),
    Rule("handled", "mcpfleet.worker.handler.duration"),
    Rule("handler_failures", "mcpfleet.worker.handler.duration", having=ERROR_TYPE),
    Rule("busy", "mcpfleet.worker.busy"),
    Rule("links", "mcpfleet.bus.links"),
    Rule("refusals", "mcpfleet.bus.refusals"),
    Rule("tasks", "mcpfleet.tasks.tasks", by="state"),
    Rule("tasks_made", "mcpfleet.tasks.created"),
    Rule("tasks_claimed", "mcpfleet.tasks.claimed"),
    Rule("tasks_lapsed", "mcpfleet.tasks.lapsed"),
    Rule("tasks_ended", "mcpfleet.tasks.ended", by="status"),
    Rule("cpu", "process.cpu"),
    Rule("memory", "process.resident_memory"),
)


_FOR_CALLS: Final = MOST_BYTES // 4
"""Bytes that a process in trouble has for its calls at least."""


def collect_stats(process: Process[Any], bus: Bus, ended: EndedCalls) -> Stats:
    """Return the stats of a process now, within the bytes of a message.

    Args:
        process: the one.
        bus: counts its hints.
        ended: knows which of its calls were told before.
    """
    families = process.telemetry.metrics.read(finely=True)
    stats = _within(MOST_BYTES - _FOR_CALLS, _without_calls(process, bus, families))
    room = MOST_BYTES - _size(stats)
    return stats.model_copy(update={"calls": ended.take(families, room)})


def _without_calls(process: Process[Any], bus: Bus, families: Iterable[Family]) -> Stats:
    numbers = numbers_of([*families, *usage()])
    numbers["hints"] = hints(bus.subscriptions)
    return Stats(
        version=_VERSION,
        started=STARTED,
        ready=process.health.ready,
        stopping=process.stopping.is_set(),
        lacks=tuple(
            UnmetCondition(name=name[:LONGEST_NAME], why=without_passwords(condition.why)[:LONGEST_TEXT])
            for name, condition in process.health.conditions.items()
            if not condition.ok
        )[:MOST_LACKS],
        # Within the contract's bounds, whatever value a gauge has.
        numbers={name: min(max(0.0, value), LARGEST) for name, value in list(numbers.items())[:MOST_NUMBERS]},
        troubles=tuple(map(_reported, recent_errors.of(process.id)))[-MOST_ERRORS:],
    )


def _within(most: int, stats: Stats) -> Stats:
    """Leave out the oldest errors, and then conditions, of a message that would be too long to be read at all."""
    while _size(stats) > most and (stats.troubles or stats.lacks):
        shorter = {"troubles": stats.troubles[1:]} if stats.troubles else {"lacks": stats.lacks[:-1]}
        stats = stats.model_copy(update=shorter)
    return stats


def _size(stats: Stats) -> int:
    return len(stats.model_dump_json().encode())


def numbers_of(families: Iterable[Family]) -> dict[str, float]:
    """Return the numbers that the rules make of metrics; metrics that a service lacks make none."""
    found = {family.name: family for family in families}
    numbers: dict[str, float] = {}
    for rule in RULES:
        family = found.get(rule.metric)
        for point in family.points if family is not None else ():
            labels = dict(zip(family.labels, point.labels, strict=True)) if family is not None else {}
            if rule.having and not labels[rule.having]:
                continue
            name = f"{rule.number}_{labels[rule.by]}"[:LONGEST_NAME] if rule.by else rule.number
            numbers[name] = numbers.get(name, 0.0) + _value(point)
    return numbers


def hints(subscriptions: Iterable[Subscription]) -> float:
    """Return how many hints the present subscriptions have heard."""
    return float(sum(each.received for each in subscriptions if each.subject.startswith("hint.")))


def _value(point: Point) -> float:
    return float(sum(point.buckets)) if point.buckets else point.value


def _reported(error: RecentError) -> ReportedError:
    return ReportedError(
        at=error.at,
        level="warning" if error.level == "warning" else "error",
        event=error.event[:LONGEST_TEXT],
        of=without_passwords(error.of)[:LONGEST_TEXT],
        trace=error.trace,
        sampled=error.sampled,
    )
