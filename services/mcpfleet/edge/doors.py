"""Which Host and Origin may come in, so that no web page makes a browser call a server on its own network."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from mcpfleet.contracts.exposure import is_loopback
from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.headers import Headers

_NAMES_REMEMBERED: Final = 256


class Doors:
    """The names by which clients may call us; loopback's names count where we listen on loopback."""

    def __init__(self, bind: str, public_hosts: Iterable[str]) -> None:
        """Set the names up.

        Args:
            bind: where the edge listens.
            public_hosts: `host` or `host:port` in clients' URLs; without a port, any.
        """
        self._loopback = is_loopback(bind)
        self._public = frozenset(host.lower() for host in public_hosts)
        self._is_ours = lru_cache(maxsize=_NAMES_REMEMBERED)(self._judge)

    def check_host(self, headers: Headers) -> None:
        """Check that the request was meant for us.

        Raises:
            Rejection: 403.
        """
        hosts = headers.all(b"host")
        if len(hosts) != 1 or not self._is_ours(hosts[0].decode("latin-1")):
            raise Rejection(403)

    def check_origin(self, headers: Headers) -> None:
        """Check where a browser's request comes from; `null` is nowhere we know (M17).

        Raises:
            Rejection: 403.
        """
        origins = headers.all(b"origin")
        if not origins:
            return
        parts = urlsplit(origins[0].decode("latin-1"))
        if len(origins) > 1 or parts.scheme not in ("http", "https") or not self._is_ours(parts.netloc):
            raise Rejection(403)

    def _judge(self, authority: str) -> bool:
        authority = authority.lower()
        host = _host(authority)
        return authority in self._public or host in self._public or (self._loopback and _is_local(host))


def _host(authority: str) -> str:
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
