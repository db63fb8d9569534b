"""Who checks credentials: one for each mode, behind one question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mcpfleet.authorization.rules import Verified


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
            Refused: it admits nobody here.
            NotKnown: it cannot be told now.
        """

    def trusted(self) -> Trusted | None:
        """The keys that make credentials good; none where another process decides about each, or nothing is known."""
