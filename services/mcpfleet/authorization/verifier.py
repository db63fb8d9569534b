"""Checking a credential: the question, its answer, and how it is refused. Each mode has one verifier."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from mcpfleet.contracts.principal import Principal


class Reason(StrEnum):
    """Why a credential was refused, as a metric's label: few values, none of which comes from a caller."""

    MISSING = "missing"
    MALFORMED = "malformed"
    CLAIMS = "claims"
    """A required claim is missing or malformed."""
    ALGORITHM = "algorithm"
    KEY = "unknown_key"
    SIGNATURE = "signature"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    EARLY = "not_yet_valid"
    EXPIRED = "expired"
    REVOKED = "revoked"
    UNKNOWN = "unknown_token"
    """The file, the issuer or the operator's own function does not know it."""


class CredentialRefused(Exception):
    """Raised when a credential admits nobody. Its sentence is for the operator, and never quotes the credential."""

    def __init__(self, sentence: str, reason: Reason) -> None:
        super().__init__(sentence)
        self.reason = reason


def for_another_audience() -> CredentialRefused:
    """Refuse a credential that was issued for another resource."""
    return CredentialRefused("it is for another audience", Reason.AUDIENCE)


class CredentialUnchecked(Exception):
    """Raised when a credential cannot be checked now, since the issuer or the operator's function does not answer."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The content of a checked credential."""

    principal: Principal
    expires: float | None = None
    """When it expires (seconds since 1970); None where it does not expire."""
    issued: float | None = None
    """When it was issued (seconds since 1970); None where that is not known."""
    key: str | None = None
    """Names the key that signed it, or the list that has it; None where another process decides."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """The keys whose credentials are good, as `Verified.key` names them."""

    keys: tuple[str, ...]
    age: float
    """Seconds since they were fetched."""


class Verifier(Protocol):
    """Checks bearer tokens."""

    async def verify(self, token: str, endpoint: str, resource: str) -> Verified:
        """Check a token, and return what it says.

        Args:
            token: as the client sent it.
            endpoint: the endpoint's name.
            resource: the endpoint's URL, for which the token must be issued.

        Raises:
            CredentialRefused: it admits nobody here.
            CredentialUnchecked: it cannot be checked now.
        """

    def trusted(self) -> Trusted | None:
        """The keys whose credentials are good; None where another process decides about each, or none is known yet."""
