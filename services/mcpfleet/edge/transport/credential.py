"""A request's credential: read from its one header, told to authorization, and printed nowhere (invariant 9)."""

from __future__ import annotations

import string
from hashlib import sha256
from typing import Final

from mcpfleet.wire.headers import Headers

_TOKEN: Final = (string.ascii_letters + string.digits + "-._~+/").encode()
"""The characters of a bearer token (RFC 6750, 2.1), but for equals signs at its end."""


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
    scheme, _, rest = values[0].strip(b" \t").partition(b" ")
    token = rest.lstrip(b" ")
    bare = token.rstrip(b"=")
    # Taking away what a token may have is ten times as fast as a regular expression over a kilobyte.
    if len(values) > 1 or scheme.lower() != b"bearer" or not bare or bare.translate(None, _TOKEN):
        raise NotBearer
    return Credential(token)
