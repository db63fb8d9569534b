"""The admitted caller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mcpfleet.contracts.base import Message


class Principal(Message):
    """The admitted caller, never its token: a refreshed token is the same principal (D10)."""

    subject: str | None = None
    """The subject of the token; None if the endpoint needs no credential."""
    client: str | None = None
    tenant: str | None = None
    scopes: tuple[str, ...] = ()
    group: str | None = None
    """The group that the operator's policy puts it into; None without a policy. Callers of a group see the same."""

    @property
    def partition(self) -> str | None:
        """The unit of quota and isolation: tenant, else client, else subject; None for an anonymous caller."""
        return self.tenant or self.client or self.subject

    @property
    def is_anonymous(self) -> bool:
        """Whether it is nobody in particular: it has no name of any kind, and no scope."""
        return self is ANONYMOUS or (self.subject is self.client is self.tenant is None and not self.scopes)

    def holds(self, scopes: Iterable[str]) -> bool:
        """Return whether it has all of these scopes. Without credentials nobody has scopes, or needs any.

        This one rule serves calls, tasks and hints: an edge that wants credentials admits nobody as `ANONYMOUS`.
        """
        return self.is_anonymous or set(scopes).issubset(self.scopes)


ANONYMOUS: Final = Principal()
"""Nobody in particular."""
