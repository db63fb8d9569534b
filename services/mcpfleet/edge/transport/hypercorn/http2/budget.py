"""Bounds the work that one HTTP/2 connection may cause beyond its answered requests."""

from __future__ import annotations

import time
from typing import Final

from h2.exceptions import DenialOfServiceError

CAPACITY: Final = 250_000
"""Microseconds of work in a full budget; 500 requests that are cancelled together cost less."""
_RATE: Final = 50_000
"""Microseconds of work that each second adds: a twentieth of a core."""

SKIPPED: Final = 1
"""Microseconds to skip a frame: PRIORITY, and unknown types."""
CONTROL: Final = 25
"""Microseconds of PING, WINDOW_UPDATE, RST_STREAM, and of an acknowledgment."""
SETTINGS: Final = 60
"""Microseconds of SETTINGS, without its entries and the streams whose windows it moves."""
SMALL_READ: Final = 40
"""Microseconds to take a small read."""
SMALL_DATA: Final = 40
"""Microseconds of a small DATA frame."""
SMALL: Final = 1024
"""Bytes below which a frame or a read is small; larger ones are cheap for their size."""
FRAGMENT: Final = 15
"""Microseconds of CONTINUATION, or of HEADERS that it continues."""
REQUEST: Final = 400
"""Microseconds of a request that ended before its answer began."""
HEADERS: Final = 1_200
"""Microseconds of a request's headers that are free; 4 KiB of tokens cost that much."""
ANSWERED: Final = 500
"""Microseconds that a request earns when its answer begins."""
WORTH: Final = 2_000
"""Microseconds of its headers that it earns back, at most: a token of 8 KiB."""
SENT: Final = 100
"""Microseconds that each DATA frame to the client earns: it may send two WINDOW_UPDATE and a PING for each."""
DRIBBLED: Final = 60
"""Microseconds of a DATA frame to the client that its window made small."""


class Budget:
    """One connection's budget. Frames spend it; time, answers and sent frames fill it again."""

    __slots__ = ("_filled", "left")

    def __init__(self) -> None:
        """Begin full."""
        self.left: float = CAPACITY
        self._filled = time.monotonic()

    def spend(self, work: float) -> None:
        """Spend microseconds.

        Raises:
            DenialOfServiceError: the budget is empty. It ends the connection with ENHANCE_YOUR_CALM.
        """
        self.left -= work
        if self.left < 0:
            raise DenialOfServiceError("more work than the requests need")

    def earn(self, work: float) -> None:
        """Add microseconds, up to the capacity."""
        self.left = min(CAPACITY, self.left + work)

    def refill(self) -> None:
        """Add the microseconds of the time since the last call."""
        now = time.monotonic()
        self.earn((now - self._filled) * _RATE)
        self._filled = now
