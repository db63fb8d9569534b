"""A request's target: every spelling of a path that RFC 3986 calls equal is that path, and no other one is (T35)."""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
"""Characters that mean the same escaped and not (RFC 3986, 2.3); a slash is none of them."""
_ABSOLUTE: Final = re.compile(r"https?://[^/?#]*(?P<path>.*)", re.IGNORECASE)


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
