"""All services in one process, for `dev`: `python -m mcpfleet.cli.services`."""

from __future__ import annotations

import sys

import anyio

from mcpfleet.authorization.__main__ import SERVICE as AUTHORIZATION
from mcpfleet.catalog.__main__ import SERVICE as CATALOG
from mcpfleet.cli.known import SETTINGS
from mcpfleet.cli.migrations import migrate_store
from mcpfleet.process.run import run
from mcpfleet.store.settings import StoreSettings


def main() -> int:
    """Bring the embedded store up to date, and run every service."""
    anyio.run(migrate_store, StoreSettings.load())
    return run(AUTHORIZATION, CATALOG, known=SETTINGS.values())


if __name__ == "__main__":
    sys.exit(main())
