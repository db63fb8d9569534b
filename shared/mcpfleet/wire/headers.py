"""A request's headers, sorted once: the checks ask for each several times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mcpfleet.wire.errors import header_mismatch

VERSION: Final = b"mcp-protocol-version"
SESSION: Final = b"mcp-session-id"
"""For the revisions of 2025 only; in a modern request it means nothing (T8)."""
_PLAIN = frozenset([0x09, *range(0x20, 0x7F)])
"""The allowed bytes of a header's value: visible ASCII, space and tab."""


class Headers:
    """Headers by their lower-case names (M4)."""

    __slots__ = ("_values",)

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        values: dict[bytes, tuple[bytes, ...]] = {}
        repeated: dict[bytes, list[bytes]] = {}
        for name, value in pairs:
            if name in values:
                repeated.setdefault(name, []).append(value)
            else:
                values[name] = (value,)
        for name, more in repeated.items():  # added at once: a head may repeat one header ten thousand times
            values[name] += tuple(more)
        self._values = values

    def names(self) -> Iterable[bytes]:
        """Return the names of all headers."""
        return self._values.keys()

    def all(self, name: bytes) -> tuple[bytes, ...]:
        """Return every value of a header, as it came."""
        return self._values.get(name, ())

    def single(self, name: bytes) -> str | None:
        """Return the value of a header that may stand once, without spaces and tabs around it; None if it is absent.

        Raises:
            Rejection: -32020 if it is repeated or has characters that a header cannot carry (M5).
        """
        values = self._values.get(name)
        if values is None:
            return None
        if len(values) > 1 or not _PLAIN.issuperset(values[0]):
            raise header_mismatch(f"{name.decode()} is repeated or has invalid characters")
        return values[0].decode("ascii").strip(" \t")

    def version(self) -> str | None:
        """Return the version header of a request of 2025; None if it is absent. A repeated value counts once (L21).

        Libraries add their header beside the application's, in a line of its own or behind a comma.

        Raises:
            Rejection: -32020 if its values differ or have characters that a header cannot carry.
        """
        values = self._values.get(VERSION)
        if values is None:
            return None
        values = _different(values)
        if len(values) > 1 or not _PLAIN.issuperset(values[0]):
            raise header_mismatch(f"{VERSION.decode()} has several values or invalid characters")
        return values[0].decode("ascii").strip(" \t")

    def session(self) -> bytes | None:
        """Return the session of a request of 2025; a repeated one counts once. None for no session, or several
        (L21)."""
        values = _different(self._values.get(SESSION, ()))
        return values[0] if len(values) == 1 else None


def _different(values: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the different values of a single header, from lines of their own or behind commas."""
    if len(values) == 1 and b"," not in values[0]:
        return values
    parts = {part.strip(b" \t") for value in values for part in value.split(b",")} - {b""}
    return tuple(parts) or (values and (b"",))
