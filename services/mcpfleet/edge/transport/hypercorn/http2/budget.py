"""How much work one HTTP/2 connection may cause that no answered request needs."""

from __future__ import annotations

import time
from typing import Final

from h2.exceptions import DenialOfServiceError

CAPACITY: Final = 250_000
"""Microseconds of work that a connection may cause at once: more than 500 requests that are cancelled together."""
_RATE: Final = 50_000
"""Microseconds of work that come back each second: a twentieth of a core."""

SKIPPED: Final = 1
"""Microseconds to read past a frame: PRIORITY, and the types that HTTP/2 does not know."""
CONTROL: Final = 25
"""Microseconds of PING, WINDOW_UPDATE, RST_STREAM, and of an acknowledgment."""
SETTINGS: Final = 60
"""Microseconds of SETTINGS, beside its entries and the streams whose windows it moves."""
SMALL_READ: Final = 40
"""Microseconds to take what arrived, where it is little."""
SMALL_DATA: Final = 40
"""Microseconds of a DATA frame with little in it."""
SMALL: Final = 1024
"""Bytes below which a frame or a read is small: 5 MB in larger parts are cheap."""
FRAGMENT: Final = 15
"""Microseconds of CONTINUATION, or of a HEADERS that it follows."""
REQUEST: Final = 400
"""Microseconds of a request that ended before its answer began."""
HEADERS: Final = 1_200
"""Microseconds that the headers of a request may need free of charge: 4 KiB of tokens do."""
ANSWERED: Final = 500
"""Microseconds that a request is worth when its answer begins."""
WORTH: Final = 2_000
"""Microseconds of its headers that it may be worth beside: a token of 8 KiB."""
SENT: Final = 100
"""Microseconds that a DATA frame of ours is worth: a client may send two WINDOW_UPDATE and a PING for each."""
DRIBBLED: Final = 60
"""Microseconds of a small DATA frame of ours, which the client's window made small."""


class Budget:
    """One connection's budget: frames spend it; time, answers and what the client takes of them bring it back."""

    __slots__ = ("_filled", "left")

    def __init__(self) -> None:
        """Begin with all of it."""
        self.left: float = CAPACITY
        self._filled = time.monotonic()

    def spend(self, work: float) -> None:
        """Spend so many microseconds.

        Raises:
            DenialOfServiceError: they are not left; it ends the connection with ENHANCE_YOUR_CALM.
        """
        self.left -= work
        if self.left < 0:
            raise DenialOfServiceError("more work than the requests need")

    def earn(self, work: float) -> None:
        """Get back so many microseconds, up to the capacity."""
        self.left = min(CAPACITY, self.left + work)

    def refill(self) -> None:
        """Get back what time has brought."""
        now = time.monotonic()
        self.earn((now - self._filled) * _RATE)
        self._filled = now
