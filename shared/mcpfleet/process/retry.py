"""Pauses between tries: short at first, then longer, up to a bound."""

from __future__ import annotations

from collections.abc import Iterator


def pauses(first: float, longest: float) -> Iterator[float]:
    """Yield the seconds to wait between tries, without end: each pause is twice the one before.

    Args:
        first: the first pause.
        longest: the longest pause.
    """
    pause = min(first, longest)
    while True:
        yield pause
        pause = min(2 * pause, longest)
