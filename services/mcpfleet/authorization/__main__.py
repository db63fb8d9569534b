"""Wires authorization, and runs it: `python -m mcpfleet.authorization`."""

from __future__ import annotations

import sys
from typing import Final

import anyio

from mcpfleet.authorization.actor import AuthorizationActor
from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.bus.actor import Actor
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.connect import bus_of, watch_link
from mcpfleet.bus.discovery import Discovery
from mcpfleet.process.run import Process, Service, run


async def serve(process: Process[AuthorizationSettings]) -> None:
    """Answer until told to stop; what was asked by then is answered."""
    await serve_over(process, bus_of(process, process.name))


async def serve_over(process: Process[AuthorizationSettings], bus: Bus) -> None:
    """The same, over a bus of the caller's."""
    settings = process.settings
    watch_link(process, bus)
    actor = Actor(
        bus,
        settings,
        tracer=process.telemetry.tracer,
        log=process.log,
        concurrency=settings.authorization_concurrency,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(bus.run)
        await Discovery(bus, process.name).listen()
        await tasks.start(actor.run)
        await AuthorizationActor(settings).register(actor)
        await process.stopping.wait()
        with anyio.move_on_after(settings.drain):
            await actor.drain()
        tasks.cancel_scope.cancel()


SERVICE: Final = Service("authorization", serve, AuthorizationSettings)


if __name__ == "__main__":
    sys.exit(run(SERVICE))
