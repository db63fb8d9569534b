"""Tells clients how to get a token: RFC 9728's documents, and the challenges that lead to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic_core import to_json

from mcpfleet.contracts.access import is_scope, resource_of
from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.allowed_hosts import AllowedHosts
from mcpfleet.edge.transport.http_exchange import HttpExchange
from mcpfleet.edge.transport.request_head import normal
from mcpfleet.wire.errors import Rejection, forbidden, malformed_authorization, unauthorized, wrong_http_method

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_MOST_SCOPES: Final = 64
"""Scopes that a header names at most, so that it passes every proxy."""
_ALLOWED: Final = "GET, HEAD, OPTIONS"
_OPEN: Final = {"Access-Control-Allow-Origin": "*"}
_PREFLIGHT: Final = {
    **_OPEN,
    "Access-Control-Allow-Methods": _ALLOWED,
    "Access-Control-Allow-Headers": "*",
    "Allow": _ALLOWED,
}

ScopesOf = Callable[[str], Iterable[str]]
"""Returns the scopes that an endpoint's definitions name."""


class ResourceMetadata:
    """The resource identifier and the scopes of each endpoint."""

    def __init__(self, settings: EdgeSettings, base_url: str, scopes_of: ScopesOf) -> None:
        """Name the endpoints.

        Args:
            settings: the edge's.
            base_url: where clients on this machine reach the edge; used where the edge has no public URL.
            scopes_of: returns an endpoint's scopes.
        """
        self._scopes_of = scopes_of
        self._preferred = tuple(filter(is_scope, settings.scopes))
        public = settings.public_url or base_url
        self.resources = {name: resource_of(public, each.path) for name, each in settings.endpoints.items()}
        self.servers = settings.authorization_servers or ((settings.issuer,) if settings.issuer else ())

    def scopes(self, endpoint: str) -> tuple[str, ...]:
        """Return the scopes that a client asks for first: those of the settings, else all that definitions name."""
        scopes = self._preferred or tuple(sorted(filter(is_scope, self._scopes_of(endpoint))))
        return scopes[:_MOST_SCOPES]

    def document_url(self, endpoint: str) -> str | None:
        """Return the URL of an endpoint's document; None where no authorization server is known (M62)."""
        if not self.servers:
            return None
        parts = urlsplit(self.resources[endpoint])
        return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path}"

    def document(self, endpoint: str) -> dict[str, Any]:
        """Return the metadata of an endpoint in the form of RFC 9728."""
        scopes = self.scopes(endpoint)
        return {
            "resource": self.resources[endpoint],
            "authorization_servers": list(self.servers),
            **({"scopes_supported": list(scopes)} if scopes else {}),
            "bearer_methods_supported": ["header"],
        }


class Challenges:
    """Composes the answers to requests without a sufficient credential."""

    def __init__(self, metadata: ResourceMetadata) -> None:
        self._metadata = metadata

    def missing(self, endpoint: str) -> Rejection:
        """Reject a request without a credential (401). The challenge names no error (RFC 6750, 3.1)."""
        return unauthorized(self._challenge(endpoint), "no token was sent")

    def refused(self, endpoint: str, reason: str = "") -> Rejection:
        """Reject a credential that is malformed or denied (401); the reason is for the operator's log."""
        return unauthorized(self._challenge(endpoint, error="invalid_token"), reason)

    def malformed(self, endpoint: str) -> Rejection:
        """Reject a token in a wrong place (400; M61, M63)."""
        return malformed_authorization(self._challenge(endpoint, error="invalid_request"))

    def insufficient_scope(self, endpoint: str, needed: Iterable[str]) -> Rejection:
        """Reject a credential that lacks a scope (403). The challenge names all scopes of the operation (M63)."""
        scopes = tuple(filter(is_scope, needed))[:_MOST_SCOPES]
        return forbidden(self._challenge(endpoint, error="insufficient_scope", scopes=scopes))

    def _challenge(self, endpoint: str, error: str = "", scopes: tuple[str, ...] | None = None) -> str:
        scopes = self._metadata.scopes(endpoint) if scopes is None else scopes
        parts = {
            "error": error,
            "resource_metadata": self._metadata.document_url(endpoint),
            "scope": " ".join(scopes),
        }
        return ("Bearer " + ", ".join(f'{name}="{value}"' for name, value in parts.items() if value)).strip()


class Metadata:
    """Serves the documents to everybody: they need no credential, and scripts of any page may read them (T1)."""

    def __init__(self, metadata: ResourceMetadata, endpoints: Mapping[str, Endpoint], hosts: AllowedHosts) -> None:
        self._metadata = metadata
        self._hosts = hosts
        self._paths: dict[str, str] = {}
        if metadata.servers:
            for name, endpoint in endpoints.items():
                # The path of the public URL; and the path here, since a proxy may remove a prefix.
                for path in (urlsplit(metadata.resources[name]).path, endpoint.path):
                    self._paths.setdefault(normal(WELL_KNOWN + path), name)
            # The root stands for one endpoint: the first, which is the only one of most fleets.
            self._paths[WELL_KNOWN] = next(iter(endpoints))

    def takes(self, exchange: HttpExchange) -> bool:
        """Return whether a request is for one of the documents."""
        return exchange.path in self._paths

    async def answer(self, exchange: HttpExchange) -> None:
        """Answer a request for a document.

        Raises:
            Rejection: 403 for another Host, 405 for another method.
        """
        self._hosts.check_host(exchange.headers)
        if exchange.http_method == "OPTIONS":
            await exchange.answer(204, headers=_PREFLIGHT)
        elif exchange.http_method in ("GET", "HEAD"):
            document = self._metadata.document(self._paths[exchange.path])
            await exchange.answer(200, to_json(document), _OPEN)
        else:
            raise wrong_http_method(_ALLOWED)
