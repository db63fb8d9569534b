"""Tokens that the issuer has signed (JWT), checked with its public keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import jwt

from mcpfleet.authorization.keys import Keys
from mcpfleet.authorization.rules import verified_by
from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.authorization.verifier import CredentialRefused, Reason, Trusted, Verified

_REQUIRED: Final = ["exp", "iss", "aud"]
_WHY: Final[dict[type[jwt.PyJWTError], tuple[str, Reason]]] = {
    jwt.ExpiredSignatureError: ("it has expired", Reason.EXPIRED),
    jwt.ImmatureSignatureError: ("it is not valid yet", Reason.EARLY),
    jwt.InvalidIssuerError: ("it is of another issuer", Reason.ISSUER),
    jwt.InvalidSignatureError: ("its signature is wrong", Reason.SIGNATURE),
    jwt.MissingRequiredClaimError: ("it lacks exp, iss or aud", Reason.CLAIMS),
}
"""Our own sentences: a library's might quote a part of the token."""


class JwtVerifier:
    """Verifies JWTs: issuer, audience and expiry are required, and the algorithm must be listed in the settings."""

    def __init__(self, keys: Keys, settings: AuthorizationSettings) -> None:
        self._keys = keys
        self._settings = settings
        # Some libraries write an issuer's URL with a slash at its end.
        issuer = settings.issuer.rstrip("/")
        self._issuers = [issuer, f"{issuer}/"]

    async def verify(self, token: str, endpoint: str, resource: str) -> Verified:  # noqa: ARG002  # the Verifier's form
        """Check signature and claims."""
        try:
            head = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise CredentialRefused("it is not a JWT", Reason.MALFORMED) from None
        algorithm, kid = head.get("alg"), head.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._settings.jwt_algorithms:
            raise CredentialRefused("its algorithm is not listed (MCPFLEET_JWT_ALGORITHMS)", Reason.ALGORITHM)
        if kid is not None and not isinstance(kid, str):
            raise CredentialRefused("it is not a JWT", Reason.MALFORMED)
        key = await self._keys.find(kid, algorithm)
        claims = self._claims(token, key.public, algorithm)
        verified = verified_by(claims, resource=resource, tenant_claim=self._settings.tenant_claim)
        return replace(verified, key=key.name)

    def trusted(self) -> Trusted | None:
        """The issuer's keys of the last fetch; None before the first."""
        return self._keys.trusted()

    def _claims(self, token: str, key: Any, algorithm: str) -> dict[str, Any]:
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=self._issuers,
                leeway=self._settings.bus_clock_tolerance,
                # Our own rule compares the audience: a slash at the end may differ.
                options={"require": _REQUIRED, "verify_aud": False},
            )
        except (jwt.PyJWTError, TypeError, ValueError, OverflowError) as error:
            malformed = ("it is malformed", Reason.MALFORMED)
            raise CredentialRefused(
                *next((why for kind, why in _WHY.items() if isinstance(error, kind)), malformed)
            ) from None
