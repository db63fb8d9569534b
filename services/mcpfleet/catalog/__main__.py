"""Wires the catalog, and runs it: `python -m mcpfleet.catalog`."""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.service import bus_of, run_service
from mcpfleet.catalog.actor import CatalogActor
from mcpfleet.catalog.files import FileRepository
from mcpfleet.catalog.repository import CatalogRepository
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.catalog.sweeper import CatalogSweeper
from mcpfleet.console.publish import serve_console
from mcpfleet.contracts.stats import Role
from mcpfleet.process.run import Process, Service, run
from mcpfleet.store.engine import store_of
from mcpfleet.store.errors import OUTAGES
from mcpfleet.telemetry.instruments import CatalogInstruments


async def serve(process: Process[CatalogSettings]) -> None:
    """Answer and sweep until told to stop; what was asked by then is answered."""
    await serve_over(process, bus_of(process, process.name))


async def serve_over(process: Process[CatalogSettings], bus: Bus) -> None:
    """Do the same over a given bus."""
    settings, log = process.settings, process.log
    instruments = CatalogInstruments(process.telemetry.metrics)
    async with store_of(settings, process.name, departure=process.departure) as store:
        repository = CatalogRepository(store, settings, log=log)
        files = FileRepository(store, settings)
        sweeper = CatalogSweeper(repository, files, bus, process, instruments)
        catalog = CatalogActor(repository, files, sweeper, settings.endpoints, log=log)
        beside = partial(serve_console, process, bus, Role.CATALOG)
        concurrency = settings.catalog_concurrency
        await run_service(
            process, bus, catalog, loop=sweeper.run, concurrency=concurrency, outage=OUTAGES, beside=beside
        )


SERVICE: Final = Service("catalog", serve, CatalogSettings)


if __name__ == "__main__":
    sys.exit(run(SERVICE))
