"""Tokens that only the issuer can read: it is asked what each is worth (RFC 7662)."""

from __future__ import annotations

from mcpfleet.authorization.issuer import Upstream
from mcpfleet.authorization.rules import Reason, Refused, Verified, verified_by
from mcpfleet.authorization.settings import AuthorizationSettings


class Introspection:
    """Verifies tokens by asking the issuer, as one of its clients."""

    def __init__(self, upstream: Upstream, settings: AuthorizationSettings) -> None:
        self._upstream = upstream
        self._settings = settings

    async def verify(self, token: str, endpoint: str, resource: str) -> Verified:  # noqa: ARG002  # the Verifier's form
        """Ask, and check that the token is for us: the issuer knows tokens of other resources too (M61)."""
        settings = self._settings
        claims = await self._upstream.post(
            settings.introspection_url,
            {"token": token, "token_type_hint": "access_token"},
            (settings.introspection_client, settings.introspection_secret.get_secret_value()),
        )
        if claims.get("active") is not True:
            raise Refused("the issuer says that it is not active", Reason.UNKNOWN)
        issuer = claims.get("iss")
        if settings.issuer and issuer is not None and str(issuer).rstrip("/") != settings.issuer.rstrip("/"):
            raise Refused("it is of another issuer", Reason.ISSUER)
        return verified_by(claims, resource=resource, tenant_claim=settings.tenant_claim, has_end=False)

    def trusted(self) -> None:
        """Name no key: the issuer decides about each token."""
