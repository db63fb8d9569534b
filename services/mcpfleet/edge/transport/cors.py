"""CORS: lets web pages of configured origins call (M17)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from mcpfleet.wire.headers import Headers
from mcpfleet.wire.mirror import PREFIX

_REQUESTED: Final = 64
"""Headers that a preflight may request."""
_ALLOWED: Final = (
    "authorization",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "traceparent",
    "tracestate",
    "baggage",
)
_EXPOSED: Final = (b"access-control-expose-headers", b"Mcp-Session-Id, WWW-Authenticate, Retry-After")
_MIRRORED: Final = re.compile(rb"%b[a-z0-9!#$%%&'*+.^_`|~-]+" % re.escape(PREFIX))
"""The name of a header that mirrors an argument."""
_MAX_AGE: Final = 600
"""Seconds that a browser may cache a preflight's answer."""

Pairs = list[tuple[bytes, bytes]]


class Cors:
    """Knows the origins that may call, and composes the headers for their browsers."""

    def __init__(self, origins: Iterable[str]) -> None:
        """Allow these origins, each as a browser sends it (`EdgeSettings.cors_origins`)."""
        self.origins = frozenset(origin.encode() for origin in origins)

    def headers(self, headers: Headers) -> Pairs:
        """Return the headers of a response; none of them where no origins are configured."""
        if not self.origins:
            return []
        pairs = [(b"vary", b"Origin")]
        origin = self._origin(headers)
        return pairs if origin is None else [*pairs, (b"access-control-allow-origin", origin), _EXPOSED]

    def is_preflight(self, method: str, headers: Headers) -> bool:
        """Return whether a request is a preflight of an allowed origin."""
        asks = bool(headers.all(b"access-control-request-method"))
        return method == "OPTIONS" and asks and self._origin(headers) is not None

    def preflight(self, headers: Headers) -> dict[str, str]:
        """Return the further headers of a preflight's answer; each requested `Mcp-Param-…` is allowed."""
        requested = b",".join(headers.all(b"access-control-request-headers")).lower().split(b",")[:_REQUESTED]
        mirrored = [name.strip() for name in requested if _MIRRORED.fullmatch(name.strip())]
        allowed = [*_ALLOWED, *(name.decode() for name in mirrored)]
        return {
            "Access-Control-Allow-Methods": "POST, GET, DELETE",
            "Access-Control-Allow-Headers": ", ".join(allowed),
            "Access-Control-Max-Age": str(_MAX_AGE),
        }

    def _origin(self, headers: Headers) -> bytes | None:
        origins = headers.all(b"origin")
        return origins[0] if len(origins) == 1 and origins[0] in self.origins else None
