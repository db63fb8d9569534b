"""Wires subscriptions, and runs it: `python -m mcpfleet.subscriptions`."""

from __future__ import annotations

import sys
from typing import Final

import anyio

from mcpfleet.bus.actor import Actor
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.connect import bus_of, watch_link
from mcpfleet.bus.discovery import Discovery
from mcpfleet.contracts.figures import Role
from mcpfleet.live.telling import show
from mcpfleet.process.run import Process, Service, run
from mcpfleet.store.engine import open_store
from mcpfleet.subscriptions.actor import SubscriptionsActor
from mcpfleet.subscriptions.ledger import Ledger
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.subscriptions.sweeper import Sweeper


async def serve(process: Process[SubscriptionsSettings]) -> None:
    """Answer and sweep until told to stop; what was asked by then is answered."""
    await serve_over(process, bus_of(process, process.name))


async def serve_over(process: Process[SubscriptionsSettings], bus: Bus) -> None:
    """The same, over a bus of the caller's."""
    settings = process.settings
    watch_link(process, bus)
    actor = Actor(
        bus,
        settings,
        tracer=process.telemetry.tracer,
        log=process.log,
        concurrency=settings.subscriptions_concurrency,
    )
    url = settings.store_url.get_secret_value()
    bounds = settings.store_bounds
    async with open_store(url, service=process.name, embedded=settings.embedded, bounds=bounds) as store:
        ledger = Ledger(store)
        sweeper = Sweeper(ledger, bus, settings, health=process.health, log=process.log)
        subscriptions = SubscriptionsActor(ledger, sweeper, settings, log=process.log)
        async with anyio.create_task_group() as tasks:
            await tasks.start(bus.run)
            await Discovery(bus, process.name).listen()
            tasks.start_soon(show, process, bus, Role.SUBSCRIPTIONS)
            await tasks.start(actor.run)
            tasks.start_soon(_answer, sweeper, subscriptions, actor)
            await process.stopping.wait()
            with anyio.move_on_after(settings.drain):
                await actor.drain()
            tasks.cancel_scope.cancel()


async def _answer(sweeper: Sweeper, subscriptions: SubscriptionsActor, actor: Actor) -> None:
    """Sweep until cancelled, and answer once there is something to answer with."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(sweeper.run)
        await subscriptions.register(actor)


SERVICE: Final = Service("subscriptions", serve, SubscriptionsSettings)


if __name__ == "__main__":
    sys.exit(run(SERVICE))
