"""Counts the values and the nesting of a JSON text without parsing it (T31).

A parser holds the interpreter until it is done, on whichever thread. Seven megabytes of `[[],[],…]` would hold it for a
second; as many bytes of one string hold it for a hundredth of that. Here a few passes over the bytes suffice. They cost
one or two milliseconds for each 256 KiB, and five for nothing but brackets.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate, count
from operator import add, sub
from typing import Final

from mcpfleet.wire.errors import bad_envelope, not_json

MAX_DEPTH: Final = 128
"""Levels of nesting that a text may have; a parser's own bound would be the interpreter's stack."""
MAX_VALUES: Final = 100_000
"""Values and keys that a text may have by default: parsing the worst takes 40 ms."""
SLICE: Final = 256 * 1024
"""Bytes that are scanned in one go."""
DIGITS: Final = 4
"""Characters of numbers that cost a parser as much as one value."""

_ALL: Final = frozenset(range(256))
_NO_NUMBER: Final = bytes(_ALL - frozenset(b"0123456789+-.eE"))
_NO_BRACKET: Final = bytes(_ALL - frozenset(b"[]{}"))
_STEPS: Final = bytes.maketrans(b"[]{}", b"1010")
"""Brackets as digits of a binary number: a step up or down."""
_AT_ONCE: Final = 8
"""Steps that are followed at once, as the bits of a byte."""


def _levels(steps: int) -> list[int]:
    """Return the levels, above the beginning, after each of eight steps."""
    return list(accumulate(1 if steps >> bit & 1 else -1 for bit in reversed(range(_AT_ONCE))))


_RISES: Final = bytes(_levels(steps)[-1] + _AT_ONCE for steps in range(256))
"""The rise of eight steps, eight too high each: bytes have no sign."""
_TOPS: Final = bytes(max(0, *_levels(steps)) for steps in range(256))
"""The highest level on the way of eight steps."""


class Scan:
    """Scans a text slice by slice.

    A text that is not JSON may pass, since a parser stops at its first fault.
    """

    def __init__(self, most: int, levels: int = MAX_DEPTH) -> None:
        """Begin with nothing.

        Args:
            most: the most values and keys of the text; `DIGITS` characters of numbers count as one.
            levels: the most levels of nesting.
        """
        self._most = most
        self._levels = levels
        self._is_escaped = False
        """The next character follows a backslash."""
        self._is_inside = False
        """The next character is a string's."""
        self._strings = self._values = self._digits = self._opened = self._depth = 0

    def feed(self, part: bytes) -> None:
        """Scan the next bytes.

        Raises:
            Rejection: -32600 for too many values, -32700 for too many levels.
        """
        outside = self._outside(part)
        opened = outside.count(b"[") + outside.count(b"{")
        self._opened += opened
        self._step(outside)
        self._values += opened + outside.count(b",") + outside.count(b":")
        self._digits += len(outside.translate(None, _NO_NUMBER))
        self._check(self._values + self._digits // DIGITS)

    def _check(self, values: int) -> None:
        if values > self._most:
            raise bad_envelope(f"more than {self._most} values")

    def _outside(self, part: bytes) -> bytes:
        """Return the bytes outside of strings."""
        if self._is_escaped:
            part, self._is_escaped = part[1:], not part
        if b"\\" in part:
            self._is_escaped = (len(part) - len(part.rstrip(b"\\"))) % 2 == 1
            part = part.replace(b"\\\\", b"").replace(b'\\"', b"")
        quotes = part.count(b'"')
        self._strings += quotes
        self._check(self._strings // 2 - 1)  # before they are split; beside each but one stands something that counts
        pieces = part.split(b'"')
        outside = b"".join(pieces[self._is_inside :: 2])
        self._is_inside ^= quotes % 2 == 1
        return outside

    def _step(self, outside: bytes) -> None:
        """Follow the nesting; a slice with fewer openings than are allowed in all cannot nest more deeply."""
        steps = outside.translate(_STEPS, _NO_BRACKET)
        if self._opened > self._levels and self._highest(steps) > self._levels:
            raise not_json()
        self._depth += 2 * steps.count(b"1") - len(steps)

    def _highest(self, steps: bytes) -> int:
        """Return the highest level on the way, eight steps at once: a Python element for each would take long."""
        if not steps:
            return self._depth
        number = int(steps + b"0" * (-len(steps) % _AT_ONCE), 2)
        eights = number.to_bytes(-(-len(steps) // _AT_ONCE))
        begun = map(sub, accumulate(eights.translate(_RISES), initial=self._depth), count(0, _AT_ONCE))
        highest: int = max(map(add, begun, eights.translate(_TOPS)))
        return highest


def scan(body: bytes, most: int, levels: int = MAX_DEPTH) -> Iterator[None]:
    """Scan a whole text, with a pause after each slice.

    Raises:
        Rejection: as `Scan.feed`.
    """
    if len(body) <= most and body.count(b"[") + body.count(b"{") <= levels:
        return  # each value takes a byte, so few bodies need it
    look = Scan(most, levels)
    for start in range(0, len(body), SLICE):
        look.feed(body[start : start + SLICE])
        yield


@contextmanager
def without_gc() -> Iterator[None]:
    """Keep the garbage collector off a large parse: its objects are no garbage, and would be searched in vain."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
