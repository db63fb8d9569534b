"""What the in-memory switch does wrong when told to: it loses, doubles and delays messages, by a seed."""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass

from mcpfleet.bus.memory_rights import Tokens, matches, tokens_of

_REMEMBERED = 1024
"""Orders of senders and subjects between two looks for those that are past."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How often a message meets a fault on its way to one receiver; nothing by default.

    What a process sends to itself is spared: were it lost, so would be the link, for which there is `Switch.cut`.
    """

    lost: float = 0.0
    """The share of messages that do not arrive."""
    doubled: float = 0.0
    """The share that arrive twice."""
    late: float = 0.0
    """The share that are delayed, and overtaken by others: never by one of the same sender and subject."""
    delay: float = 0.1
    """Seconds by which the latest is late."""
    subjects: tuple[str, ...] = (">",)
    """What is hit: subjects with their prefix, or patterns of them."""

    def hit(self, subject: Tokens) -> bool:
        """Whether messages of a subject meet these faults."""
        return any(matches(tokens_of(pattern), subject) for pattern in self.subjects)


NO_FAULTS = Faults()


class Fates:
    """Draws what becomes of each message."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  # it is to be guessed
        self._orders: dict[Hashable, float] = {}

    def draw(self, faults: Faults, subject: Tokens, order: Hashable, now: float) -> list[float]:
        """Say when each copy of a message arrives; none where it is lost.

        Args:
            faults: what may happen.
            subject: the message's.
            order: messages of one order arrive in the order in which they were drawn.
            now: the time of the event loop.
        """
        due = max(now, self._orders.get(order, now))  # others of its order may still be late
        copies = 1
        if faults is not NO_FAULTS and faults.hit(subject):
            if self._happens(faults.lost):
                return []
            copies += self._happens(faults.doubled)
            if self._happens(faults.late):
                due = max(due, now + self._random.uniform(0, faults.delay))
        if due > now:
            self._keep(order, due, now)
        return [due] * copies

    def _happens(self, share: float) -> bool:
        return self._random.random() < share

    def _keep(self, order: Hashable, due: float, now: float) -> None:
        if len(self._orders) >= _REMEMBERED:
            self._orders = {each: until for each, until in self._orders.items() if until > now}
        self._orders[order] = due
