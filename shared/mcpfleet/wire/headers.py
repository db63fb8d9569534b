"""A request's headers, sorted out once: each is asked for several times on the way up the ladder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mcpfleet.wire.errors import header_mismatch

VERSION: Final = b"mcp-protocol-version"
SESSION: Final = b"mcp-session-id"
"""Of the revisions of 2025 alone; a modern request's means nothing (T8)."""
_PLAIN = frozenset([0x09, *range(0x20, 0x7F)])
"""The bytes that a header's value may have: visible ASCII, space and tab."""


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
        for name, more in repeated.items():  # added at once: a head may have one header ten thousand times
            values[name] += tuple(more)
        self._values = values

    def names(self) -> Iterable[bytes]:
        """The names of all that came."""
        return self._values.keys()

    def all(self, name: bytes) -> tuple[bytes, ...]:
        """Every value of a header, as it came."""
        return self._values.get(name, ())

    def single(self, name: bytes) -> str | None:
        """The value of a header that may stand once, spaces and tabs around it taken away; None where it is absent.

        Raises:
            Rejection: -32020 where it is repeated or has characters that a header cannot carry (M5).
        """
        values = self._values.get(name)
        if values is None:
            return None
        if len(values) > 1 or not _PLAIN.issuperset(values[0]):
            raise header_mismatch(f"{name.decode()} is repeated or has invalid characters")
        return values[0].decode("ascii").strip(" \t")

    def version(self) -> str | None:
        """The version header of a request of 2025, None where it is absent; a value that is repeated counts once (L21).

        Libraries add the header beside one that the application set, in a line of its own or behind a comma.

        Raises:
            Rejection: -32020 where its values differ or have characters that a header cannot carry.
        """
        values = self._values.get(VERSION)
        if values is None:
            return None
        values = _different(values)
        if len(values) > 1 or not _PLAIN.issuperset(values[0]):
            raise header_mismatch(f"{VERSION.decode()} has several values or invalid characters")
        return values[0].decode("ascii").strip(" \t")

    def session(self) -> bytes | None:
        """The session that a request of 2025 names, a repeated one once; None where it names none, or several (L21)."""
        values = _different(self._values.get(SESSION, ()))
        return values[0] if len(values) == 1 else None


def _different(values: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The values of a header that may have one, each once, whether in a line of its own or behind a comma."""
    if len(values) == 1 and b"," not in values[0]:
        return values
    parts = {part.strip(b" \t") for value in values for part in value.split(b",")} - {b""}
    return tuple(parts) or (values and (b"",))
