"""Wires the tasks service, and runs it: `python -m mcpfleet.tasks`."""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.service import bus_of, run_service
from mcpfleet.console.publish import serve_console
from mcpfleet.contracts.stats import Role
from mcpfleet.process.run import Process, Service, run
from mcpfleet.store.engine import store_of
from mcpfleet.store.errors import OUTAGES
from mcpfleet.tasks.actor import TasksActor
from mcpfleet.tasks.notifications import TaskNotifications
from mcpfleet.tasks.pool_actor import PoolActor
from mcpfleet.tasks.repository import TaskRepository
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.sweeper import TaskSweeper
from mcpfleet.telemetry.instruments import TasksInstruments


async def serve(process: Process[TasksSettings]) -> None:
    """Answer and sweep until told to stop; what was asked by then is answered."""
    await serve_over(process, bus_of(process, process.name))


async def serve_over(process: Process[TasksSettings], bus: Bus) -> None:
    """Do the same over a given bus."""
    settings, log = process.settings, process.log
    instruments = TasksInstruments(process.telemetry.metrics)
    async with store_of(settings, process.name, singles=True, departure=process.departure) as store:
        repository = TaskRepository(store, settings)
        notifications = TaskNotifications(bus, instruments, process.observers, log=log)
        sweeper = TaskSweeper(repository, bus, process, notifications, instruments)
        handlers = (
            TasksActor(repository, notifications, instruments),
            PoolActor(repository, notifications, instruments, log=log),
        )
        beside = partial(serve_console, process, bus, Role.TASKS)
        concurrency = settings.tasks_concurrency
        await run_service(
            process, bus, *handlers, loop=sweeper.run, concurrency=concurrency, outage=OUTAGES, beside=beside
        )


SERVICE: Final = Service("tasks", serve, TasksSettings)


if __name__ == "__main__":
    sys.exit(run(SERVICE))
