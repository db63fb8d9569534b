"""Lists of parameters in few lengths, since a database prepares each length of an IN as a statement of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Value = TypeVar("Value")


def padded(values: Sequence[Value]) -> list[Value]:
    """Repeat the last value until the length is a power of two: to an IN it is the same list."""
    length = 1 << max(0, len(values) - 1).bit_length()
    return list(values) + list(values[-1:]) * (length - len(values))
