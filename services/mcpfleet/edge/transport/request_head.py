"""Reads the path and the credential from a request's head."""

from __future__ import annotations

import re
import string
from hashlib import sha256
from typing import Final

from mcpfleet.wire.headers import Headers

_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
"""Characters that mean the same whether they are escaped or not (RFC 3986, 2.3); a slash does not."""
_ABSOLUTE: Final = re.compile(r"https?://[^/?#]*(?P<path>.*)", re.IGNORECASE)
_TOKEN: Final = (string.ascii_letters + string.digits + "-._~+/").encode()
"""The characters of a bearer token (RFC 6750, 2.1), but for equals signs at its end."""


def read_path(raw: str, *, may_be_absolute: bool) -> str:
    """Read the path of a request's target.

    Args:
        raw: the request target as received, without its query.
        may_be_absolute: for HTTP/1 only. `framing` checks that its authority is the Host (RFC 9112, 3.2.2).
    """
    if not raw.startswith("/") and may_be_absolute and (absolute := _ABSOLUTE.fullmatch(raw)) is not None:
        raw = absolute["path"] or "/"
    return normal(raw)


def normal(path: str) -> str:
    """Return a path in the spelling of the endpoints' paths (T35).

    Escapes of letters, digits and `-._~` become the characters, as RFC 3986 calls them equal. Other escapes get capital
    digits. One slash at the end is removed. Dots and double slashes stay, so that they match no endpoint: a proxy may
    have read them otherwise.
    """
    if "%" in path:
        path = _ESCAPE.sub(_unescaped, path)
    return path[:-1] if len(path) > 1 and path.endswith("/") and not path.endswith("//") else path


def _unescaped(escape: re.Match[str]) -> str:
    character = chr(int(escape[0][1:], 16))
    return character if character in _UNRESERVED else escape[0].upper()


class NotBearer(ValueError):
    """Raised when the Authorization header is repeated, or is anything but one bearer token."""


class Credential:
    """A bearer token, which is never printed (invariant 9). Its digest identifies it."""

    __slots__ = ("_token", "digest")

    def __init__(self, token: bytes) -> None:
        self._token = token
        self.digest = sha256(token).digest()

    def __repr__(self) -> str:
        return "Credential(…)"

    def reveal(self) -> str:
        """Return the token, for authorization only."""
        return self._token.decode("ascii")


def read_credential(headers: Headers) -> Credential | None:
    """Read a request's bearer token; return None without an Authorization header.

    Raises:
        NotBearer: the header is repeated, has another scheme, or the token is malformed.
    """
    values = headers.all(b"authorization")
    if not values:
        return None
    scheme, _, rest = values[0].strip(b" \t").partition(b" ")
    token = rest.lstrip(b" ")
    bare = token.rstrip(b"=")
    # For a kilobyte, this is ten times as fast as a regular expression.
    if len(values) > 1 or scheme.lower() != b"bearer" or not bare or bare.translate(None, _TOKEN):
        raise NotBearer
    return Credential(token)
