"""A request's credential: read from its one header, told to authorization, and printed nowhere (invariant 9)."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from mcpfleet.wire.headers import Headers

_BEARER: Final = re.compile(rb"[ \t]*(?i:bearer) +([A-Za-z0-9._~+/-]+=*)[ \t]*")
"""Its scheme alone is compared without case: a whole token would take twenty times as long."""


class NotBearer(ValueError):
    """Raised when an Authorization header is repeated, or carries something else than one bearer token."""


class Credential:
    """A bearer token, known by its digest."""

    __slots__ = ("_token", "digest")

    def __init__(self, token: bytes) -> None:
        self._token = token
        self.digest = sha256(token).digest()
        """What it is known by here."""

    def __repr__(self) -> str:
        return "Credential(…)"

    def reveal(self) -> str:
        """The token, for authorization alone."""
        return self._token.decode("ascii")


def read_credential(headers: Headers) -> Credential | None:
    """Read the bearer token of a request; none where it has no Authorization header.

    Raises:
        NotBearer: it has several, or another scheme, or a token of another form.
    """
    values = headers.all(b"authorization")
    if not values:
        return None
    parts = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
    if parts is None:
        raise NotBearer
    return Credential(parts[1])
