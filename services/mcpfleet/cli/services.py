"""All services in one process, for `dev`: `python -m mcpfleet.cli.services`."""

from __future__ import annotations

import sys

import anyio
import typer

from mcpfleet.authorization.__main__ import SERVICE as AUTHORIZATION
from mcpfleet.catalog.__main__ import SERVICE as CATALOG
from mcpfleet.cli.known import SETTINGS
from mcpfleet.cli.migrations import migrate_store
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.run import MISCONFIGURED, run
from mcpfleet.store.errors import StoreError
from mcpfleet.store.settings import StoreSettings
from mcpfleet.subscriptions.__main__ import SERVICE as SUBSCRIPTIONS
from mcpfleet.tasks.__main__ import SERVICE as TASKS


def main() -> int:
    """Bring the embedded store up to date, and run every service."""
    try:
        anyio.run(migrate_store, StoreSettings.load())
    except (ConfigurationError, StoreError) as error:
        typer.echo(str(error), err=True)
        return MISCONFIGURED
    return run(AUTHORIZATION, CATALOG, SUBSCRIPTIONS, TASKS, known=SETTINGS.values())


if __name__ == "__main__":
    sys.exit(main())
