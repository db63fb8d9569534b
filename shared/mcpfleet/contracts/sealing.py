"""The interface of an operator's own sealer: MCPFLEET_SEALER names the function that makes it."""

from __future__ import annotations

from typing import Protocol


class Unsealable(Exception):
    """Raised when nothing can be sealed, or opened, now: there is no key, or its keeper does not answer."""


class NotOurs(Exception):
    """Raised when a text was not sealed by this fleet or for this use, or its time is over. All three look the same."""


class OwnSealer(Protocol):
    """Seals for all edges of a fleet: each must open what any other has sealed.

    An edge gives each call 250 ms, and makes 256 at once.
    """

    async def seal(self, plain: bytes, associated: bytes) -> bytes:
        """Return bytes that hide `plain`, and that open with the same `associated` bytes only.

        Raises:
            Unsealable: it cannot be done now; the client gets 503.
        """

    async def open(self, sealed: bytes, associated: bytes) -> bytes:
        """Return what was sealed.

        Raises:
            NotOurs: the bytes were altered, or sealed elsewhere, or for other `associated` bytes.
            Unsealable: it cannot be done now; the client gets 503.
        """
