"""Who checks credentials: one for each mode, behind one question."""

from __future__ import annotations

from typing import Protocol

from mcpfleet.authorization.rules import Verified


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
