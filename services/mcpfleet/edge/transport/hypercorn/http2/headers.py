"""Checks the headers of an HTTP/2 request before they are used (RFC 9113, 8.2 and 8.3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from h2.exceptions import ProtocolError

_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_METHOD: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PATH: Final = re.compile(rb"/[!-~]*")
_CONTROL: Final = bytes((*range(9), *range(10, 32), 127))
"""Bytes that no value may have; a tab within it is allowed."""
_MOST: Final = 256
"""Headers that a request may have."""
_SCHEMES: Final = (b"http", b"https")
"""`https` comes from a proxy that ends TLS."""
_PSEUDO: Final = frozenset((b":method", b":scheme", b":path", b":authority"))
_CONNECTION: Final = frozenset((b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"))
"""Headers of one HTTP/1.1 connection, which HTTP/2 forbids."""


class Malformed(ProtocolError):
    """Raised when a request is malformed; it ends that request's stream only."""


def check_request(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Check the headers of a request.

    Raises:
        Malformed: they violate RFC 9113.
    """
    _check_number(headers)
    pseudo: dict[bytes, bytes] = {}
    hosts: list[bytes] = []
    is_regular = False
    for name, value in headers:
        if name[:1] == b":":
            if is_regular or name in pseudo or name not in _PSEUDO:
                raise Malformed(f"pseudo header {name!r} repeated, unknown or late")
            pseudo[name] = value
        else:
            is_regular = True
            _check_field(name, value)
            if name == b"host":
                hosts.append(value)
    _check_target(pseudo)
    _check_authority(pseudo.get(b":authority"), hosts)


def check_trailers(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Check the trailers behind a body, among which no pseudo header is allowed.

    Raises:
        Malformed: they violate RFC 9113.
    """
    _check_number(headers)
    for name, value in headers:
        _check_field(name, value)


def _check_number(headers: Sequence[object]) -> None:
    if len(headers) > _MOST:
        raise Malformed("too many headers")


def _check_field(name: bytes, value: bytes) -> None:
    if not _NAME.fullmatch(name) or not _is_value(value):
        raise Malformed(f"malformed header {name[:64]!r}")
    if name in _CONNECTION or (name == b"te" and value.lower() != b"trailers"):
        raise Malformed(f"header {name!r} is of a connection")


def _check_target(pseudo: dict[bytes, bytes]) -> None:
    method, path = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if not _METHOD.fullmatch(method) or method == b"CONNECT":  # the edge is no proxy
        raise Malformed("no method, or one that is none")
    if pseudo.get(b":scheme", b"").lower() not in _SCHEMES:
        raise Malformed("no scheme, or one that is not HTTP's")
    if not (_PATH.fullmatch(path) or (path == b"*" and method == b"OPTIONS")):
        raise Malformed("no path, or one that is none")


def _check_authority(authority: bytes | None, hosts: list[bytes]) -> None:
    names = [host.lower() for host in ([] if authority is None else [authority]) + hosts]
    if not names or len(hosts) > 1 or names[0] != names[-1]:
        raise Malformed("no authority, or several")
    if not _is_value(names[0]):
        raise Malformed("an authority that is none")


def _is_value(value: bytes) -> bool:
    # For a token, a regular expression takes ten times as long.
    return value.strip(b" \t") == value and len(value.translate(None, _CONTROL)) == len(value)
