"""The admitted caller."""

from __future__ import annotations

from typing import Final

from mcpfleet.contracts.base import Message


class Principal(Message):
    """The admitted caller, never its token: a refreshed token is the same principal (D10)."""

    subject: str | None = None
    """The subject of the token; None if the endpoint needs no credential."""
    client: str | None = None
    tenant: str | None = None
    scopes: tuple[str, ...] = ()

    @property
    def partition(self) -> str | None:
        """The unit of quota and isolation: tenant, else client, else subject; None for an anonymous caller."""
        return self.tenant or self.client or self.subject

    @property
    def is_anonymous(self) -> bool:
        """Whether it is nobody in particular: it has no name of any kind, and no scope."""
        return self is ANONYMOUS or self == ANONYMOUS


ANONYMOUS: Final = Principal()
"""Nobody in particular."""
