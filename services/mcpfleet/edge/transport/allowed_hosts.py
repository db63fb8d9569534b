"""Checks Host and Origin, so that no web page can make a browser call a server on the browser's own network."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final

from structlog.typing import FilteringBoundLogger

from mcpfleet.process.host import HOSTS_WANTED, authority_of, forms_of_host, is_among, is_loopback
from mcpfleet.process.settings import host_and_port
from mcpfleet.wire.errors import foreign_host, foreign_origin
from mcpfleet.wire.headers import Headers

_NAMES_CACHED: Final = 256
"""Names whose check is cached."""
_LONGEST_LOGGED: Final = 100
"""Characters of a refused name in the log."""


class AllowedHosts:
    """The host names that clients may use; loopback's names count where the edge listens on loopback."""

    def __init__(
        self,
        bind: str,
        public_hosts: Iterable[str],
        origins: Collection[bytes] = (),
        *,
        log: FilteringBoundLogger,
    ) -> None:
        """Set the names.

        Args:
            bind: where the edge listens.
            public_hosts: `host` or `host:port` in clients' URLs; a name without a port allows any port. Each may have
                any spelling (I6). The log names those that no client can send.
            origins: other origins whose pages may call.
            log: names refused hosts and origins, and public hosts that match nothing.
        """
        self._log = log
        self._origins = origins
        self._loopback = is_loopback(host_and_port(bind)[0])
        forms = {each: forms_of_host(each) for each in public_hosts}
        self._public = frozenset(name for names in forms.values() for name in names)
        if useless := [ascii(each) for each, names in forms.items() if not names]:
            log.warning("public hosts match nothing", hosts=useless, want=f"MCPFLEET_PUBLIC_HOSTS {HOSTS_WANTED}")
        self._is_allowed = lru_cache(maxsize=_NAMES_CACHED)(self._check_authority)

    def check_host(self, headers: Headers) -> None:
        """Check that the request was meant for this edge.

        Raises:
            Rejection: 403.
        """
        hosts = headers.all(b"host")
        if len(hosts) != 1 or not self._is_allowed(hosts[0].decode("latin-1")):
            self._log.warning("host refused", name=_printable(hosts))
            raise foreign_host()

    def check_origin(self, headers: Headers) -> None:
        """Check where a browser's request comes from; the origin `null` is refused (M17).

        Raises:
            Rejection: 403.
        """
        origins = headers.all(b"origin")
        if not origins or (len(origins) == 1 and origins[0] in self._origins):
            return
        scheme, separator, authority = origins[0].decode("latin-1").partition("://")
        if len(origins) > 1 or not separator or scheme not in ("http", "https") or not self._is_allowed(authority):
            self._log.warning("origin refused", name=_printable(origins))
            raise foreign_origin()

    def _check_authority(self, authority: str) -> bool:
        parts = authority_of(authority)
        if parts is None:
            return False
        return is_among(parts, self._public) or (self._loopback and is_loopback(parts[0].strip("[]")))


def _printable(values: tuple[bytes, ...]) -> str:
    """Return a refused name for the log: in ASCII, and cut short, since a stranger wrote it."""
    return ascii(b", ".join(values)[:_LONGEST_LOGGED].decode("latin-1"))
