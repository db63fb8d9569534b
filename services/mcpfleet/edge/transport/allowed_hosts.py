"""Which Host and Origin may come in, so that no web page makes a browser call a server on its own network."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final

from structlog.typing import FilteringBoundLogger

from mcpfleet.process.host import is_loopback
from mcpfleet.process.settings import host_and_port
from mcpfleet.wire.errors import foreign_host, foreign_origin
from mcpfleet.wire.headers import Headers

_NAMES_REMEMBERED: Final = 256
_AUTHORITY: Final = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{1,5})?")
"""A host and perhaps a port, and nothing that another reader could take for a user or a path."""
_LONGEST_TOLD: Final = 100
"""Characters of a refused name that the log has."""


class AllowedHosts:
    """The names by which clients may call us; loopback's names count where we listen on loopback."""

    def __init__(
        self,
        bind: str,
        public_hosts: Iterable[str],
        origins: Collection[bytes] = (),
        *,
        log: FilteringBoundLogger,
    ) -> None:
        """Set the names up.

        Args:
            bind: where the edge listens.
            public_hosts: `host` or `host:port` in clients' URLs; without a port, any.
            origins: other origins whose pages may call.
            log: names what was refused.
        """
        self._log = log
        self._origins = origins
        self._loopback = is_loopback(host_and_port(bind)[0])
        self._public = frozenset(host.lower() for host in public_hosts)
        self._is_ours = lru_cache(maxsize=_NAMES_REMEMBERED)(self._judge)

    def check_host(self, headers: Headers) -> None:
        """Check that the request was meant for us.

        Raises:
            Rejection: 403.
        """
        hosts = headers.all(b"host")
        if len(hosts) != 1 or not self._is_ours(hosts[0].decode("latin-1")):
            self._log.warning("host refused", name=_printable(hosts))
            raise foreign_host()

    def check_origin(self, headers: Headers) -> None:
        """Check where a browser's request comes from; `null` is nowhere we know (M17).

        Raises:
            Rejection: 403.
        """
        origins = headers.all(b"origin")
        if not origins or (len(origins) == 1 and origins[0] in self._origins):
            return
        scheme, separator, authority = origins[0].decode("latin-1").partition("://")
        if len(origins) > 1 or not separator or scheme not in ("http", "https") or not self._is_ours(authority):
            self._log.warning("origin refused", name=_printable(origins))
            raise foreign_origin()

    def _judge(self, authority: str) -> bool:
        parts = _AUTHORITY.fullmatch(authority.lower())
        if parts is None:
            return False
        host = parts["v6"] or parts["name"]
        return authority.lower() in self._public or host in self._public or (self._loopback and is_loopback(host))


def _printable(values: tuple[bytes, ...]) -> str:
    """A refused name, which a stranger made: in ASCII, and cut short."""
    return ascii(b", ".join(values)[:_LONGEST_TOLD].decode("latin-1"))
