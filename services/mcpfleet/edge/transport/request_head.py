"""What is read from a request's head alone: its path, and its credential."""

from __future__ import annotations

import re
import string
from hashlib import sha256
from typing import Final

from mcpfleet.wire.headers import Headers

_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
"""Characters that mean the same escaped and not (RFC 3986, 2.3); a slash is none of them."""
_ABSOLUTE: Final = re.compile(r"https?://[^/?#]*(?P<path>.*)", re.IGNORECASE)
_TOKEN: Final = (string.ascii_letters + string.digits + "-._~+/").encode()
"""The characters of a bearer token (RFC 6750, 2.1), but for equals signs at its end."""


def read_path(raw: str, *, may_be_absolute: bool) -> str:
    """Read the path of a request's target.

    Args:
        raw: the target as it came, without its query.
        may_be_absolute: of HTTP/1 alone. Its authority is the Host's, which `framing` holds it to (RFC 9112, 3.2.2).
    """
    if not raw.startswith("/") and may_be_absolute and (absolute := _ABSOLUTE.fullmatch(raw)) is not None:
        raw = absolute["path"] or "/"
    return normal(raw)


def normal(path: str) -> str:
    """Give a path the spelling that endpoints are known by.

    Escaped letters, digits and `-._~` are themselves. The digits of other escapes are capitals. One slash at the end is
    left out. Dots and double slashes lead nowhere: a proxy before us may have read them otherwise.
    """
    if "%" in path:
        path = _ESCAPE.sub(_unescaped, path)
    return path[:-1] if len(path) > 1 and path.endswith("/") and not path.endswith("//") else path


def _unescaped(escape: re.Match[str]) -> str:
    character = chr(int(escape[0][1:], 16))
    return character if character in _UNRESERVED else escape[0].upper()


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
