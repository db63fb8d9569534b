"""The faults that the in-memory switch can have: it loses, doubles and delays messages, by a seed."""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass

from mcpfleet.bus.memory.permissions import Tokens, matches, tokens_of

_REMEMBERED = 1024
"""Orders of senders and subjects after which those that are past are dropped."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How often a message meets a fault on its way to one receiver; by default never."""

    lost: float = 0.0
    """The share of messages that do not arrive."""
    doubled: float = 0.0
    """The share that arrive twice."""
    late: float = 0.0
    """The share that are delayed and overtaken by others, but never by one of the same sender and subject."""
    delay: float = 0.1
    """Seconds of the longest delay."""
    subjects: tuple[str, ...] = (">",)
    """The affected subjects, with their prefix, or patterns of them."""
    seed: int = 0
    """Decides which messages are affected."""

    def hit(self, subject: Tokens) -> bool:
        """Return whether messages of a subject meet these faults."""
        return any(matches(tokens_of(pattern), subject) for pattern in self.subjects)


NO_FAULTS = Faults()


class Fates:
    """Draws the fate of each message."""

    def __init__(self) -> None:
        self._orders: dict[Hashable, float] = {}
        self.begin(NO_FAULTS)

    def begin(self, faults: Faults) -> None:
        """Draw by other faults from now on; late messages stay late."""
        self._faults = faults
        self._random = random.Random(faults.seed)  # noqa: S311  # it is to be guessed

    def draw(self, subject: Tokens, order: Hashable, now: float) -> list[float]:
        """Return when each copy of a message arrives; none for a lost message.

        Args:
            subject: the subject of the message.
            order: messages of one order arrive in the order of their draws.
            now: the time of the event loop.
        """
        faults = self._faults
        due = max(now, self._orders.get(order, now))  # others of its order may still be late
        if faults is NO_FAULTS or not faults.hit(subject):
            return [due]
        if self._happens(faults.lost):
            return []
        dues = []
        for _ in range(1 + self._happens(faults.doubled)):
            if self._happens(faults.late):
                due = max(due, now + self._random.uniform(0, faults.delay))
            dues.append(due)
        self._keep(order, due, now)
        return dues

    def _happens(self, share: float) -> bool:
        return self._random.random() < share

    def _keep(self, order: Hashable, due: float, now: float) -> None:
        if len(self._orders) >= _REMEMBERED:
            self._orders = {each: until for each, until in self._orders.items() if until > now}
        self._orders[order] = due
