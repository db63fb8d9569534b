"""The services by name: their settings, one of them as this process, or all in one (`python -m mcpfleet.cli.services`).

A service is imported only where it runs, since imports are most of a process's start.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

import anyio
import typer

from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.names import MISCONFIGURED
from mcpfleet.process.run import run
from mcpfleet.process.settings import Settings
from mcpfleet.store.settings import StoreSettings
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.worker.settings import WorkerSettings

SETTINGS: Final[dict[str, type[Settings]]] = {
    "edge": EdgeSettings,
    "authorization": AuthorizationSettings,
    "catalog": CatalogSettings,
    "subscriptions": SubscriptionsSettings,
    "tasks": TasksSettings,
    "worker": WorkerSettings,
}
"""Every class of settings. One environment may serve all processes: a name that no class knows is a mistake."""
STORED: Final = ("authorization", "catalog", "subscriptions", "tasks")
"""The services that have tables; `dev` runs them in one process."""


def run_service(name: str) -> int:
    """Run a service as this process; returns the exit code."""
    service = import_module(f"mcpfleet.{name}.__main__").SERVICE
    return run(service, known=SETTINGS.values())


async def migrate_store(settings: StoreSettings) -> dict[str, str]:
    """Bring the tables of all services to their newest revisions; returns those that were missing.

    Raises:
        ConfigurationError: MCPFLEET_STORE_URL is malformed, or not allowed.
        StoreError: the database does not answer.
    """
    from mcpfleet.store.engine import store_of  # noqa: PLC0415
    from mcpfleet.store.migrate import migrate  # noqa: PLC0415

    schemas = [import_module(f"mcpfleet.{name}.tables").SCHEMA for name in STORED]
    async with store_of(settings, "migrate") as store:
        return await migrate(store, schemas)


def main() -> int:
    """Bring the embedded store up to date, and run every service that has tables."""
    from mcpfleet.store.errors import StoreError  # noqa: PLC0415

    try:
        anyio.run(migrate_store, StoreSettings.load())
    except (ConfigurationError, StoreError) as error:
        typer.echo(str(error), err=True)
        return MISCONFIGURED
    services = [import_module(f"mcpfleet.{name}.__main__").SERVICE for name in STORED]
    return run(*services, known=SETTINGS.values())


if __name__ == "__main__":
    sys.exit(main())
