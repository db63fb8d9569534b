"""Wires subscriptions, and runs it: `python -m mcpfleet.subscriptions`."""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

import anyio

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.service import bus_of, run_service
from mcpfleet.console.publish import serve_console
from mcpfleet.contracts.stats import Role
from mcpfleet.process.run import Process, Service, run
from mcpfleet.store.engine import store_of
from mcpfleet.store.errors import OUTAGES
from mcpfleet.subscriptions.actor import SessionsActor, SubscriptionsActor
from mcpfleet.subscriptions.grants import GrantRepository
from mcpfleet.subscriptions.notifications import SessionNotifications
from mcpfleet.subscriptions.places import PlaceRepository, PlacesActor
from mcpfleet.subscriptions.renewals import GrantRenewals
from mcpfleet.subscriptions.repository import StreamRepository
from mcpfleet.subscriptions.sessions import SessionRepository
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.subscriptions.sweeper import SubscriptionsSweeper
from mcpfleet.subscriptions.uri_hints import UriHints
from mcpfleet.telemetry.instruments import SubscriptionsInstruments


async def serve(process: Process[SubscriptionsSettings]) -> None:
    """Answer and sweep until told to stop; what was asked by then is answered."""
    await serve_over(process, bus_of(process, process.name))


async def serve_over(process: Process[SubscriptionsSettings], bus: Bus) -> None:
    """Do the same over a given bus."""
    settings, log = process.settings, process.log
    async with store_of(settings, process.name, departure=process.departure) as store:
        repository = StreamRepository(store)
        sessions, instruments = SessionRepository(store, settings), SubscriptionsInstruments(process.telemetry.metrics)
        notifications = SessionNotifications(bus, process.observers, instruments, log=log)
        grants = GrantRepository(store, settings)
        hints = UriHints(bus, grants, notifications, log=log)
        renewals = GrantRenewals(grants, bus, notifications, settings, log=log)
        places = PlaceRepository(store)
        sweeper = SubscriptionsSweeper(
            repository, sessions, grants, places, notifications, bus, process, instruments=instruments
        )
        handlers = (
            SubscriptionsActor(repository, sweeper, settings, log=log),
            SessionsActor(sessions, grants, hints, notifications, settings, log=log),
            PlacesActor(places),
        )

        async def beside() -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(renewals.run)
                tasks.start_soon(hints.run)
                tasks.start_soon(partial(serve_console, process, bus, Role.SUBSCRIPTIONS))

        concurrency = settings.subscriptions_concurrency
        await run_service(
            process, bus, *handlers, loop=sweeper.run, concurrency=concurrency, outage=OUTAGES, beside=beside
        )


SERVICE: Final = Service("subscriptions", serve, SubscriptionsSettings)


if __name__ == "__main__":
    sys.exit(run(SERVICE))
