"""Who checks credentials: one for each mode, behind one question."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from mcpfleet.contracts.principal import Principal


class Reason(StrEnum):
    """Why a credential was refused, as it is counted: few values, and nothing of a caller's."""

    MISSING = "missing"
    MALFORMED = "malformed"
    CLAIMS = "claims"
    """One that it must have is not there, or of another form."""
    ALGORITHM = "algorithm"
    KEY = "unknown_key"
    SIGNATURE = "signature"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    EARLY = "not_yet_valid"
    EXPIRED = "expired"
    REVOKED = "revoked"
    UNKNOWN = "unknown_token"
    """Whoever would know it, the file, the issuer or the operator's own code, does not."""


class CredentialRefused(Exception):
    """Raised when a credential admits nobody; its sentence is for the operator, and quotes nothing of it."""

    def __init__(self, sentence: str, reason: Reason) -> None:
        super().__init__(sentence)
        self.reason = reason


class CredentialUnchecked(Exception):
    """Raised when it cannot be known now what a credential is worth: whoever knows does not answer."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What a credential was found to say."""

    principal: Principal
    expires: float | None = None
    """Seconds since 1970 after which it says nothing; none where it does not end by itself."""
    issued: float | None = None
    """Seconds since 1970; none where nobody says."""
    key: str | None = None
    """Names the key that signed it, or the list that has it, where that is known here."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """The keys by which credentials are good, as `Verified.key` names them."""

    keys: tuple[str, ...]
    age: float
    """Seconds since they were fetched."""


class Verifier(Protocol):
    """Checks bearer tokens."""

    async def verify(self, token: str, endpoint: str, resource: str) -> Verified:
        """Say whom a token speaks for.

        Args:
            token: as the client sent it.
            endpoint: the endpoint's name.
            resource: its URL, which the token must be for.

        Raises:
            CredentialRefused: it admits nobody here.
            CredentialUnchecked: it cannot be told now.
        """

    def trusted(self) -> Trusted | None:
        """The keys that make credentials good; none where another process decides about each, or nothing is known."""
