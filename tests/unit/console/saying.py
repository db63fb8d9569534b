"""Processes for the tests of the console, and what they say."""

from __future__ import annotations

from typing import Any

from mcpfleet.console.nodes import Known, Node
from mcpfleet.contracts.stats import Figures, Speaker

NOW = 1000.0


def edge(process: str = "e" * 16) -> Speaker:
    return Speaker("edge", "", process)


def worker(process: str = "a" * 16, pool: str = "library") -> Speaker:
    return Speaker("worker", pool, process)


def tasks(process: str = "b" * 16) -> Speaker:
    return Speaker("tasks", "", process)


def says(numbers: dict[str, float] | None = None, **fields: Any) -> Figures:
    """Figures of a process that is well."""
    return Figures(**{"started": 1.0, "ready": True, "numbers": numbers or {}, **fields})


def node(speaker: Speaker, figures: Figures | None = None, *, heard: float = NOW, **rates: float) -> Node:
    """A process as it is known."""
    return Node(speaker, figures or says(), heard, rates)


def heard(known: Known, speaker: Speaker, now: float, figures: Figures | None = None) -> bool:
    """Let a process speak, and say whether it was listened to."""
    if not known.wants(speaker, now):
        return False
    known.hear(speaker, figures or says(), now)
    return True
