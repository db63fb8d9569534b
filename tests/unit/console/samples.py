"""Processes for the tests of the console, and what they say."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from mcpfleet.console.nodes import Node, Nodes
from mcpfleet.contracts.stats import CallTimes, Sender, Stats
from mcpfleet.telemetry.instruments import FINE_BOUNDS

NOW = 1000.0


def edge(process: str = "e" * 16) -> Sender:
    return Sender("edge", "", process)


def worker(process: str = "a" * 16, pool: str = "library") -> Sender:
    return Sender("worker", pool, process)


def tasks(process: str = "b" * 16) -> Sender:
    return Sender("tasks", "", process)


def says(numbers: dict[str, float] | None = None, **fields: Any) -> Stats:
    """Figures of a process that is well."""
    return Stats(**{"started": 1.0, "ready": True, "numbers": numbers or {}, **fields})


def ended(*seconds: float, tool: str = "search", method: str = "tools/call", failed: int = 0) -> CallTimes:
    """Calls that took so long."""
    counts = [0] * (len(FINE_BOUNDS) + 1)
    for each in seconds:
        counts[bisect_left(FINE_BOUNDS, each)] += 1
    return CallTimes(method=method, tool=tool, failed=failed, counts=tuple(counts))


def node(sender: Sender, stats: Stats | None = None, *, heard: float = NOW, **rates: float) -> Node:
    """A process as it is known."""
    return Node(sender, stats or says(), heard, rates)


def heard(known: Nodes, sender: Sender, now: float, stats: Stats | None = None) -> bool:
    """Let a process speak, and say whether it was listened to."""
    if not known.wants(sender, now):
        return False
    known.hear(sender, stats or says(), now)
    return True
