"""The processes that a console hears: their last stats and growth rates, within bounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from mcpfleet.contracts.stats import EVERY, Sender, Stats

MOST: Final = 1_000
"""Processes that are shown."""
MOST_ALIKE: Final = 300
"""Processes of one pool, or of one service: a worker that is taken over may invent as many as it likes."""
SILENT_AFTER: Final = 3.5 * EVERY
"""Seconds without a message after which a process counts as silent."""
FORGOTTEN_AFTER: Final = 60.0
"""Seconds after which a silent process is dropped; one that announced its stop is dropped once it is silent."""
CLOSE: Final = 0.5
"""Seconds after a message in which its sender is ignored: nobody keeps a console busy by talking."""


@dataclass(frozen=True, slots=True)
class Node:
    """One process."""

    sender: Sender
    stats: Stats
    heard: float
    """Monotonic seconds, by our clock."""
    rates: dict[str, float]
    """The growth of each number a second between the last two messages; it means nothing for a gauge."""

    def number(self, name: str) -> float:
        """Return a number as it was told last; 0 if it was not."""
        return self.stats.numbers.get(name, 0.0)

    def rate(self, name: str) -> float:
        """Return a counter's growth a second."""
        return self.rates.get(name, 0.0)

    def silence(self, now: float) -> float:
        """Return the seconds for which the process was not heard, if that is too long; else 0."""
        silent = now - self.heard
        return silent if silent > SILENT_AFTER else 0.0


class Nodes:
    """The processes by their senders."""

    def __init__(self) -> None:
        self._nodes: dict[Sender, Node] = {}
        self._alike: Counter[tuple[str, str]] = Counter()
        self.unshown = False
        """Whether some process found no place."""

    def wants(self, sender: Sender, now: float) -> bool:
        """Return whether a message of this process is worth reading now."""
        node = self._nodes.get(sender)
        if node is not None:
            return now - node.heard >= CLOSE
        if len(self._nodes) < MOST and self._alike[_kind(sender)] < MOST_ALIKE:
            return True
        self.unshown = True
        return False

    def hear(self, sender: Sender, stats: Stats, now: float) -> None:
        """Take in the stats of a wanted process."""
        before = self._nodes.get(sender)
        if before is None:
            self._alike[_kind(sender)] += 1
        self._nodes[sender] = Node(sender, stats, now, _rates(before, stats, now))

    def last_heard(self, sender: Sender) -> float | None:
        """Return when a process was heard last (monotonic); None for one that is not known."""
        node = self._nodes.get(sender)
        return None if node is None else node.heard

    def nodes(self, now: float) -> list[Node]:
        """Return the shown processes in order: services, then pools. Drop those that were silent for long."""
        for node in list(self._nodes.values()):
            if node.silence(now) > (0 if node.stats.stopping else FORGOTTEN_AFTER):
                del self._nodes[node.sender]
                self._alike[_kind(node.sender)] -= 1
        return [self._nodes[each] for each in sorted(self._nodes, key=lambda each: (each.pool, each))]


def _kind(sender: Sender) -> tuple[str, str]:
    return sender.role, sender.pool


def _rates(before: Node | None, stats: Stats, now: float) -> dict[str, float]:
    if before is None or before.stats.started != stats.started:
        return {}
    passed = now - before.heard
    old = before.stats.numbers
    return {name: max(0.0, number - old[name]) / passed for name, number in stats.numbers.items() if name in old}
