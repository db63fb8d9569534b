"""Brings a store up to date for all services."""

from __future__ import annotations

from mcpfleet.authorization.tables import SCHEMA as AUTHORIZATION
from mcpfleet.catalog.tables import SCHEMA as CATALOG
from mcpfleet.store.engine import store_of
from mcpfleet.store.migrate import migrate
from mcpfleet.store.settings import StoreSettings
from mcpfleet.subscriptions.tables import SCHEMA as SUBSCRIPTIONS
from mcpfleet.tasks.tables import SCHEMA as TASKS


async def migrate_store(settings: StoreSettings) -> dict[str, str]:
    """Bring every service's tables to the newest revision; returns those that were not there yet.

    Raises:
        ConfigurationError: MCPFLEET_STORE_URL is malformed, or not allowed.
        StoreError: the database does not answer.
    """
    async with store_of(settings, "migrate") as store:
        return await migrate(store, [AUTHORIZATION, CATALOG, SUBSCRIPTIONS, TASKS])
