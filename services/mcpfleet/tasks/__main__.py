"""Wires the tasks service, and runs it: `python -m mcpfleet.tasks`."""

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
from mcpfleet.tasks.actor import TasksActor
from mcpfleet.tasks.answering import answering
from mcpfleet.tasks.ledger import Ledger
from mcpfleet.tasks.pool_actor import PoolActor
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.signals import Signals
from mcpfleet.tasks.sweeper import Sweeper
from mcpfleet.telemetry.instruments import TasksInstruments


async def serve(process: Process[TasksSettings]) -> None:
    """Answer and sweep until told to stop; what was asked by then is answered."""
    await serve_over(process, bus_of(process, process.name))


async def serve_over(process: Process[TasksSettings], bus: Bus) -> None:
    """The same, over a bus of the caller's."""
    settings, log = process.settings, process.log
    watch_link(process, bus)
    instruments = TasksInstruments(process.telemetry.metrics)
    actor = Actor(bus, settings, tracer=process.telemetry.tracer, log=log, concurrency=settings.tasks_concurrency)
    url, bounds = settings.store_url.get_secret_value(), settings.store_bounds
    async with open_store(url, service=process.name, embedded=settings.embedded, bounds=bounds) as store:
        ledger = Ledger(store, settings)
        signals = Signals(bus, instruments, log=log)
        sweeper = Sweeper(ledger, bus, settings, signals, health=process.health, instruments=instruments, log=log)
        handlers = (
            TasksActor(ledger, signals, answering(log), instruments),
            PoolActor(ledger, signals, answering(log), instruments),
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(bus.run)
            await Discovery(bus, process.name).listen()
            tasks.start_soon(show, process, bus, Role.TASKS)
            await tasks.start(actor.run)
            tasks.start_soon(_answer, sweeper, handlers, actor)
            await process.stopping.wait()
            with anyio.move_on_after(settings.drain):
                await actor.drain()
            tasks.cancel_scope.cancel()


async def _answer(sweeper: Sweeper, handlers: tuple[TasksActor, PoolActor], actor: Actor) -> None:
    """Sweep until cancelled, and answer once there is something to answer with."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(sweeper.run)
        for each in handlers:
            await each.register(actor)


SERVICE: Final = Service("tasks", serve, TasksSettings)


if __name__ == "__main__":
    sys.exit(run(SERVICE))
