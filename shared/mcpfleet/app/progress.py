"""What becomes of a progress report: sent, dropped, or an error (P2, M60)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto

from mcpfleet.app.errors import ProgressError


@dataclass(frozen=True, slots=True)
class Progress:
    """One report of how far a call is."""

    value: float
    total: float | None = None
    """What `value` will have reached at the end, where that is known."""
    message: str | None = None


class Verdict(Enum):
    """What to do with a report."""

    SEND = auto()
    DROP = auto()
    """It says nothing new: the same value was sent before."""


def judge(last: float | None, report: Progress) -> Verdict:
    """Decide about the report that follows `last`, the value sent before it; None where it is the first.

    The first is sent even if it is 0. Integers are compared exactly, whatever their size.

    Raises:
        ProgressError: the value or the total is not finite, or the value is less than `last`.
    """
    for name, number in (("value", report.value), ("total", report.total)):
        if isinstance(number, float) and not math.isfinite(number):
            raise ProgressError(f"progress {name} must be finite, not {number}")
    if last is None or report.value > last:
        return Verdict.SEND
    if report.value == last:
        return Verdict.DROP
    raise ProgressError(f"progress must not go back: {report.value} after {last}")
