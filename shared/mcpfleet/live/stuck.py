"""What does not move though it should, in words for whoever is on call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Final

from mcpfleet.live.known import Node

MOST_ALIKE: Final = 20
"""Things that are told of one service, or of one pool."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """One thing."""

    node: Node | None
    """The process that it concerns; none for the fleet."""
    what: str


def stuck(nodes: Sequence[Node], now: float) -> list[Stuck]:
    """All that does not move, of the fleet and then of each process; the nodes of a pool stand side by side."""
    found = list(_of_fleet(nodes))
    for _, alike in groupby(nodes, lambda node: (node.speaker.role, node.speaker.pool)):
        found += islice((each for node in alike for each in _of_node(node, now)), MOST_ALIKE)
    return found


def _of_fleet(nodes: Sequence[Node]) -> Iterator[Stuck]:
    tasks = [node for node in nodes if node.speaker.role == "tasks"]
    waiting = max((node.number("tasks_ready") for node in tasks), default=0)
    if waiting and not any(node.rate("tasks_claimed") for node in tasks):
        yield Stuck(None, f"waiting tasks that no worker takes: {waiting:.0f}")
    if nodes and not any(node.speaker.role == "worker" for node in nodes):
        yield Stuck(None, "no worker is heard")


def _of_node(node: Node, now: float) -> Iterator[Stuck]:
    silence = node.silence(now)
    if silence:
        yield Stuck(node, f"not heard for {silence:.0f} s")
        return
    if not node.figures.stopping:
        for lack in node.figures.lacks:
            yield Stuck(node, f"not ready: {lack.name}: {lack.why}")
    queued, slots, refusals = node.number("queued"), node.number("slots"), node.number("refusals")
    if queued:
        yield Stuck(node, f"calls that wait for room in a pool: {queued:.0f}")
    if slots and node.number("slots_used") >= slots:
        yield Stuck(node, f"all its slots are in use: {slots:.0f}")
    if refusals:
        yield Stuck(node, f"subjects that NATS has refused it since its start: {refusals:.0f}")
