"""Where clients learn how to get a token: RFC 9728's documents, and the challenges that lead to them."""

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
"""Scopes that a header names: it has to get through every proxy."""
_OPEN: Final = {"Access-Control-Allow-Origin": "*"}
_PREFLIGHT: Final = {
    **_OPEN,
    "Access-Control-Allow-Methods": "GET, OPTIONS",
    "Access-Control-Allow-Headers": "*",
    "Allow": "GET, OPTIONS",
}

ScopesOf = Callable[[str], Iterable[str]]
"""The scopes that an endpoint's definitions name."""


class ResourceMetadata:
    """What each endpoint is called by its clients, and which scopes it knows."""

    def __init__(self, settings: EdgeSettings, base_url: str, scopes_of: ScopesOf) -> None:
        """Name the endpoints.

        Args:
            settings: the edge's.
            base_url: where clients on this machine reach the edge; counts where there is no public name.
            scopes_of: by an endpoint's name.
        """
        self._scopes_of = scopes_of
        self._first = tuple(filter(is_scope, settings.scopes))
        public = settings.public_url or base_url
        self.resources = {name: resource_of(public, each.path) for name, each in settings.endpoints.items()}
        self.servers = settings.authorization_servers or ((settings.issuer,) if settings.issuer else ())

    def scopes(self, endpoint: str) -> tuple[str, ...]:
        """The scopes that a client asks for first: those of the settings, else all that definitions name."""
        named = self._first or tuple(sorted(filter(is_scope, self._scopes_of(endpoint))))
        return named[:_MOST_SCOPES]

    def document_url(self, endpoint: str) -> str | None:
        """Where an endpoint's document is; none where no authorization server is known (M62)."""
        if not self.servers:
            return None
        parts = urlsplit(self.resources[endpoint])
        return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path}"

    def document(self, endpoint: str) -> dict[str, Any]:
        """What RFC 9728 wants to be known of a resource."""
        scopes = self.scopes(endpoint)
        return {
            "resource": self.resources[endpoint],
            "authorization_servers": list(self.servers),
            **({"scopes_supported": list(scopes)} if scopes else {}),
            "bearer_methods_supported": ["header"],
        }


class Challenges:
    """The answers to requests that lack a credential, or one that is good enough."""

    def __init__(self, access: ResourceMetadata) -> None:
        self._access = access

    def missing(self, endpoint: str) -> Rejection:
        """There is no credential (401): the challenge says where to get one, and no error (RFC 6750, 3.1)."""
        return unauthorized(self._challenge(endpoint))

    def refused(self, endpoint: str) -> Rejection:
        """The credential is none, or admits nobody here (401)."""
        return unauthorized(self._challenge(endpoint, error="invalid_token"))

    def malformed(self, endpoint: str) -> Rejection:
        """The token stands where none may stand (400; M61, M63)."""
        return malformed_authorization(self._challenge(endpoint, error="invalid_request"))

    def insufficient_scope(self, endpoint: str, needed: Iterable[str]) -> Rejection:
        """The credential lacks a scope (403): all scopes of the operation are named at once (M63)."""
        scopes = tuple(filter(is_scope, needed))[:_MOST_SCOPES]
        return forbidden(self._challenge(endpoint, error="insufficient_scope", scopes=scopes))

    def _challenge(self, endpoint: str, error: str = "", scopes: tuple[str, ...] | None = None) -> str:
        scopes = self._access.scopes(endpoint) if scopes is None else scopes
        parts = {
            "error": error,
            "resource_metadata": self._access.document_url(endpoint),
            "scope": " ".join(scopes),
        }
        return ("Bearer " + ", ".join(f'{name}="{value}"' for name, value in parts.items() if value)).strip()


class Metadata:
    """Serves the documents: without a credential, and to scripts of any page (T1)."""

    def __init__(self, access: ResourceMetadata, endpoints: Mapping[str, Endpoint], doors: AllowedHosts) -> None:
        self._access = access
        self._doors = doors
        self._paths: dict[str, str] = {}
        if access.servers:
            for name, endpoint in endpoints.items():
                # As the public name spells it; and as the path is here, if a proxy takes a prefix away.
                for path in (urlsplit(access.resources[name]).path, endpoint.path):
                    self._paths.setdefault(normal(WELL_KNOWN + path), name)
            # Its root names one resource: the first, which is the only one of most fleets.
            self._paths[WELL_KNOWN] = next(iter(endpoints))

    def is_asked_by(self, exchange: HttpExchange) -> bool:
        """Whether a request is for one of the documents."""
        return exchange.path in self._paths

    async def answer(self, exchange: HttpExchange) -> None:
        """Answer a request for a document.

        Raises:
            Rejection: 403 for another Host, 405 for another method.
        """
        self._doors.check_host(exchange.headers)
        if exchange.http_method == "OPTIONS":
            await exchange.answer(204, headers=_PREFLIGHT)
        elif exchange.http_method == "GET":
            document = self._access.document(self._paths[exchange.path])
            await exchange.answer(200, to_json(document), _OPEN)
        else:
            raise wrong_http_method("GET, OPTIONS")
