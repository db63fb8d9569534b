"""The settings of a service that keeps its state in SQL."""

from __future__ import annotations

from pydantic import Field, SecretStr

from mcpfleet.process.settings import Seconds, Settings
from mcpfleet.store.engine import Bounds


class StoreSettings(Settings):
    """Where the store is, and what one process may take of it."""

    store_url: SecretStr = Field(
        default=SecretStr(""),
        description="The database: postgresql://user:password@host/database, or sqlite:///path under `mcpfleet dev`.",
    )
    embedded: bool = Field(default=False, description="All processes run on one host; `mcpfleet dev` sets it.")
    store_connections: int = Field(default=10, ge=1, description="Connections to the database that a process may hold.")
    store_connect_timeout: Seconds = Field(default=5.0, gt=0, description="For a connection to the database.")
    store_timeout: Seconds = Field(
        default=10.0,
        gt=0,
        description="For a statement, a lock, a free connection, and an idle transaction.",
    )

    @property
    def store_bounds(self) -> Bounds:
        """What `open_store` is to keep to."""
        return Bounds(
            connections=self.store_connections, connect=self.store_connect_timeout, statement=self.store_timeout
        )
