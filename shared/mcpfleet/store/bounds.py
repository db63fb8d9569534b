"""What one service may take of its database, and the one place of the defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What one service may take of its database; seconds."""

    connections: int = 10
    connect: float = 5.0
    statement: float = 10.0
    """For one statement, and for a wait for a connection, for a lock, and for the next statement of a transaction."""

    @property
    def transaction(self) -> float:
        """For a whole transaction, the making of its connection included."""
        return self.connect + 3 * self.statement
