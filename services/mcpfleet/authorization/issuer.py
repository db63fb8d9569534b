"""The issuer over HTTP: it serves metadata and keys, and says by introspection what a token is worth (RFC 7662)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx2
from pydantic_core import from_json

from mcpfleet.authorization.rules import verified_by
from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.authorization.verifier import CredentialRefused, CredentialUnchecked, Reason, Verified

_LONGEST: Final = 1024 * 1024
"""Bytes of the issuer's longest answer."""


class IssuerClient:
    """Asks the issuer for JSON objects, bounded in time and size. Follows no redirect: settings name whom we trust."""

    def __init__(self, client: httpx2.AsyncClient, *, timeout: float) -> None:
        self._client = client
        self._timeout = timeout

    async def get(self, url: str) -> dict[str, Any]:
        """Fetch an object.

        Raises:
            CredentialUnchecked: no object came in time.
        """
        return await self._ask("GET", url)

    async def post(self, url: str, form: Mapping[str, str], client: tuple[str, str]) -> dict[str, Any]:
        """Send a form as one of the issuer's clients, and return the object that it answers.

        Raises:
            CredentialUnchecked: no object came in time.
        """
        return await self._ask("POST", url, data=dict(form), auth=httpx2.BasicAuth(*client))

    async def _ask(self, method: str, url: str, **options: Any) -> dict[str, Any]:
        try:
            with anyio.fail_after(self._timeout):
                status, body = await self._fetch(method, url, options)
        except (httpx2.HTTPError, TimeoutError) as error:
            raise CredentialUnchecked(
                f"{url} does not answer: {type(error).__name__}"
            ) from None  # which may hold what was sent
        if status != 200:
            raise CredentialUnchecked(f"{url} answers with HTTP {status}")
        try:
            value = from_json(body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise CredentialUnchecked(f"{url} does not answer with a JSON object")
        return value

    async def _fetch(self, method: str, url: str, options: dict[str, Any]) -> tuple[int, bytes]:
        body = b""
        headers = {"Accept": "application/json"}
        async with self._client.stream(method, url, headers=headers, **options) as response:
            async for part in response.aiter_bytes():
                body += part
                if len(body) > _LONGEST:
                    raise CredentialUnchecked(f"{url} answers with more than {_LONGEST} bytes")
            return response.status_code, body


@asynccontextmanager
async def issuer_client(timeout: float) -> AsyncIterator[IssuerClient]:
    """Open an issuer's client for the length of a block.

    Args:
        timeout: seconds that each request may take.
    """
    async with httpx2.AsyncClient(timeout=timeout, follow_redirects=False) as client:
        yield IssuerClient(client, timeout=timeout)


class IntrospectionVerifier:
    """Verifies tokens by asking the issuer, as one of its clients."""

    def __init__(self, issuer_client: IssuerClient, settings: AuthorizationSettings) -> None:
        self._upstream = issuer_client
        self._settings = settings

    async def verify(self, token: str, endpoint: str, resource: str) -> Verified:  # noqa: ARG002  # the Verifier's form
        """Ask the issuer, and check that the token is for this endpoint: it knows other resources' tokens too (M61)."""
        settings = self._settings
        claims = await self._upstream.post(
            settings.introspection_url,
            {"token": token, "token_type_hint": "access_token"},
            (settings.introspection_client, settings.introspection_secret.get_secret_value()),
        )
        if claims.get("active") is not True:
            raise CredentialRefused("the issuer says it is not active", Reason.UNKNOWN)
        issuer = claims.get("iss")
        if settings.issuer and issuer is not None and str(issuer).rstrip("/") != settings.issuer.rstrip("/"):
            raise CredentialRefused("it is of another issuer", Reason.ISSUER)
        return verified_by(claims, resource=resource, tenant_claim=settings.tenant_claim, has_end=False)

    def trusted(self) -> None:
        """Return None: the issuer decides about each token, and no key does."""
