"""Credentials of a source's own, on each request to it (B26): headers, or tokens that the SDK's providers fetch."""

from __future__ import annotations

import logging
import warnings
from collections.abc import AsyncGenerator, Mapping
from functools import cached_property
from typing import Any, Final

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp.shared.exceptions import MCPDeprecationWarning

from mcpfleet.sources.source import Url, Value

HANDSHAKE: Final = "mcpfleet.handshake"
"""The extension of a request that may be sent again with a token: it runs nothing."""
# Their lines hold URLs with queries, and answers of authorization servers: we tell failures ourselves, masked.
logging.getLogger("httpx2").setLevel(logging.WARNING)
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)


class NoToken(Exception):
    """Raised when no token can be had for a request, which was not sent; the text says why."""


def headers_of(way: Url) -> dict[str, str]:
    """Return the headers that the configuration gives each request, with a credential that is known."""
    headers = {name: value.text for name, value in way.headers.items()}
    auth = way.auth or {}
    if auth.get("kind") == "headers":
        headers |= {name: value.text for name, value in auth["headers"].items()}
    elif auth.get("kind") == "bearer":
        headers["Authorization"] = f"Bearer {auth['token'].text}"
    return headers


def tokens_of(way: Url) -> Tokens | None:
    """Return what fetches tokens for a source; None for one whose credential is known, or that needs none."""
    auth = way.auth or {}
    if auth.get("kind") not in ("client_credentials", "private_key_jwt"):
        return None
    scope = " ".join(auth.get("scopes", ())) or None
    issuer = auth.get("issuer")
    with warnings.catch_warnings():
        # Without `issuer` the source names its authorization server: docs/gateway.md says what that means.
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        if auth["kind"] == "client_credentials":
            secret = _text(auth, "client_secret")
            return Tokens(
                _ByClientSecret(way.url, _Memory(), _text(auth, "client_id"), secret, scope=scope, issuer=issuer)
            )
        client = _text(auth, "client_id")
        signed = SignedJWTParameters(
            issuer=client, subject=client, signing_key=_text(auth, "private_key"),
            signing_algorithm=auth.get("algorithm", "RS256"),
        )  # fmt: skip
        assertions = signed.create_assertion_provider()
        return Tokens(_ByPrivateKey(way.url, _Memory(), client, assertions, scope=scope, issuer=issuer))


class _Scoped(OAuthClientProvider):
    """A provider that asks for the configured scopes: a source's challenge would replace them."""

    async def _perform_authorization(self) -> httpx2.Request:
        self.context.client_metadata.scope = self.wanted or self.context.client_metadata.scope
        return await super()._perform_authorization()

    @cached_property
    def wanted(self) -> str | None:
        """The configured scopes, as the provider has them before its first request."""
        return self.context.client_metadata.scope


class _ByClientSecret(_Scoped, ClientCredentialsOAuthProvider):
    """Fetches a token by a client's secret."""


class _ByPrivateKey(_Scoped, PrivateKeyJWTOAuthProvider):
    """Fetches a token by an assertion that a client's key signs."""


class Tokens(httpx2.Auth):
    """Puts a token on each request, and fetches one where there is none, or it has expired.

    The SDK's provider sends a request again after a 401, and holds its lock until the answer begins. So it handles the
    requests of a handshake alone. Other requests are sent once (B8), side by side.
    """

    def __init__(self, provider: _Scoped) -> None:
        provider.wanted  # noqa: B018  # read before a challenge can change it
        self._provider = provider
        self._context = provider.context
        self._turn = anyio.Lock()
        self._had_token = False

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the requests that lead to an answer; raises `NoToken`."""
        flow = self._with_handshake(request) if HANDSHAKE in request.extensions else self._once(request)
        try:
            outgoing = await flow.__anext__()
            while True:
                response = yield outgoing
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except httpx2.HTTPError:
            raise
        except Exception as error:  # the provider's own errors, and those of parsing what a server says
            raise NoToken(f"no token could be had: {error}") from error
        finally:
            await flow.aclose()

    async def _with_handshake(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the token that is there; without one, or if it is refused, do what the provider does."""
        if (token := self._token()) is not None:
            request.headers["Authorization"] = token
            response = yield request
            if response.status_code != httpx2.codes.UNAUTHORIZED:
                return
            self._context.clear_tokens()
        flow = self._provider.async_auth_flow(request)
        try:
            outgoing = await flow.__anext__()
            while True:
                response = yield outgoing
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            self._had_token = self._token() is not None
        finally:
            await flow.aclose()

    async def _once(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Fetch a token if the former has expired; then send a request once."""
        if self._had_token:
            async with self._turn:
                if self._token() is None:  # another request may have fetched one meanwhile
                    response = yield await self._provider._perform_authorization()  # noqa: SLF001
                    await self._provider._handle_token_response(response)  # noqa: SLF001
        if (token := self._token()) is not None:
            request.headers["Authorization"] = token
        response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED and token == self._token():
            self._context.clear_tokens()  # the next request fetches another

    def _token(self) -> str | None:
        tokens = self._context.current_tokens
        return f"Bearer {tokens.access_token}" if tokens is not None and self._context.is_token_valid() else None


class _Memory(TokenStorage):
    """Keeps tokens for the life of the worker alone."""

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        del tokens  # the provider has them

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        del client_info


def _text(auth: Mapping[str, Any], name: str) -> str:
    value = auth[name]
    return value.text if isinstance(value, Value) else str(value)
