"""The attempts of a task: how long it waits before the next one, and when there is no next one. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mcpfleet.contracts.tasks import Status
from mcpfleet.tasks.rules import CANCELLED, VANISHED_BEFORE_ALONE, ForcedEnd

CRASHED_WORKERS: Final = "it crashed its worker three times"
FAILED_TOO_OFTEN: Final = "its attempts failed"


@dataclass(frozen=True, slots=True)
class Retry:
    """The task waits for another worker."""

    after: float
    """Seconds."""
    attempts: int
    vanished: int


Next = ForcedEnd | Retry


def backoff(attempts: int, first: float, most: float) -> float:
    """Seconds before a task is tried again after this many counted attempts: zero after the first."""
    return 0.0 if attempts <= 1 else min(first * 2.0 ** (attempts - 2), most)


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts that count against a task when another one is over."""

    attempts: int
    most_attempts: int
    vanished: int
    is_cancelled: bool

    def vanish(self, first: float, most: float) -> Next:
        """Decide after a holder was silent for a lease: twice may be chance, three times the task is the cause."""
        if self.is_cancelled:
            return CANCELLED
        attempts, vanished = self.attempts + 1, self.vanished + 1
        if vanished > VANISHED_BEFORE_ALONE:
            return ForcedEnd(Status.FAILED, "crashed_worker", CRASHED_WORKERS)
        if attempts >= self.most_attempts:
            return ForcedEnd(Status.FAILED, "attempts", FAILED_TOO_OFTEN)
        return Retry(backoff(attempts, first, most), attempts, vanished)

    def fail(self, after: float, first: float, most: float) -> Retry | None:
        """Decide after its holder said that the attempt failed; None where it was the last attempt."""
        attempts = self.attempts + 1
        if self.is_cancelled or attempts >= self.most_attempts:
            return None
        return Retry(max(after, backoff(attempts, first, most)), attempts, 0)

    def give_back(self) -> Next:
        """Decide after its holder drained, or never heard of its claim: the attempt does not count."""
        return CANCELLED if self.is_cancelled else Retry(0.0, self.attempts, self.vanished)
