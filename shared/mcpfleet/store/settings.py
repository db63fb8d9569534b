"""The settings of a service that keeps its state in SQL."""

from __future__ import annotations

from typing import Final

from pydantic import Field, SecretStr

from mcpfleet.process.settings import Seconds, Settings
from mcpfleet.store.bounds import Bounds

_DEFAULTS: Final = Bounds()


class StoreSettings(Settings):
    """Where the store is, and what one process may take of it."""

    store_url: SecretStr = Field(
        default=SecretStr(""),
        description="The database: postgresql://user:password@host/database, or sqlite:///path under `mcpfleet dev`.",
    )
    embedded: bool = Field(default=False, description="All processes run on one host; `mcpfleet dev` sets it.")
    store_connections: int = Field(
        default=_DEFAULTS.connections,
        ge=1,
        description="How many connections to the database a service may hold. The tasks service has up to 4 of them, "
        "and always less than all, for the statements that every task needs.",
    )
    store_connect_timeout: Seconds = Field(
        default=_DEFAULTS.connect, gt=0, description="How long making a connection to the database may take."
    )
    store_timeout: Seconds = Field(
        default=_DEFAULTS.statement,
        gt=0,
        description="How long a statement, or a wait for a lock or a connection, may take.",
    )

    @property
    def store_bounds(self) -> Bounds:
        """What `open_store` is to keep to."""
        return Bounds(
            connections=self.store_connections, connect=self.store_connect_timeout, statement=self.store_timeout
        )
