"""Wires a worker, and runs it: `python -m mcpfleet.worker`."""

from __future__ import annotations

import asyncio
import importlib
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import anyio

import mcpfleet.app
from mcpfleet.app import App, DeclarationError, LoadError, load
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.discovery import Discovery
from mcpfleet.bus.service import bus_of, watch_link
from mcpfleet.console.publish import publish_stats
from mcpfleet.contracts.catalog import CatalogClient
from mcpfleet.contracts.manifest import default_pool
from mcpfleet.contracts.permissions import pool_user
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.logs import say_ready
from mcpfleet.process.run import Process, Service, run
from mcpfleet.telemetry.instruments import WorkerInstruments
from mcpfleet.telemetry.trace import TraceSampling
from mcpfleet.worker.announcer import Announcer
from mcpfleet.worker.calls.actor import CallActor
from mcpfleet.worker.frames import Frame
from mcpfleet.worker.handler_loop import HandlerLoop
from mcpfleet.worker.host import WorkerHost
from mcpfleet.worker.loop_bridge import LoopBridge
from mcpfleet.worker.publisher import Publisher
from mcpfleet.worker.runner import Runner
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.tasks.actor import TaskActor
from mcpfleet.worker.tasks.errands import Errands
from mcpfleet.worker.tasks.side import AcrossLoops
from mcpfleet.worker.watched import Sets, Telling, WatchedActor


async def serve(process: Process[WorkerSettings]) -> None:
    """Run a worker until it is told to stop, and drain it: its calls are finished first."""
    settings = process.settings
    app = _load(settings.target)
    pool = settings.pool or default_pool(settings.target)
    await serve_over(process, bus_of(process, pool_user(pool)), app, pool, partial(say_ready, process.log))


async def serve_over(
    process: Process[WorkerSettings], bus: Bus, app: App, pool: str, on_ready: Callable[[], None] = lambda: None
) -> None:
    """The same, over a bus and for an application of the caller's, who may be told once it is ready."""
    settings = process.settings
    watch_link(process, bus)
    process.health.set("catalog", ok=False, why="the catalog has not counted this worker yet")
    telling = Telling(app, settings.threads, process.log)
    runner, thread, actor = _sides(process, app, pool, bus, telling)
    tasking = TaskActor(bus, pool, settings, calls=actor, order=thread.order, log=process.log)
    actor.on_task(tasking.hear)
    errands = Errands()
    runner.serve_tasks(pool, AcrossLoops(errands, tasking))
    doubtful = settings.bus_question_every + settings.bus_dead_after
    publisher = Publisher(bus, pool, doubtful=doubtful, log=process.log)
    sampling = TraceSampling.of(settings.sample_ratio if process.telemetry.enabled else 0.0)
    announcer = Announcer(
        CatalogClient(bus), pool, process.id, app.manifest(), interval=settings.announce_interval,
        on_counted=publisher.counted, tracer=process.telemetry.tracer, sampling=sampling, log=process.log,
    )  # fmt: skip
    host = WorkerHost(app, runner, actor, tasking, announcer, publisher)
    runner.on_publish(host.publish)
    async with anyio.create_task_group() as tasks:
        await tasks.start(bus.run)
        await Discovery(bus, process.name).listen()
        tasks.start_soon(publish_stats, process, bus, pool)
        await tasks.start(thread.run)
        await actor.listen({each.definition.digest: each.definition.kind for each in app.handlers})
        await tasks.start(errands.run)
        await tasks.start(tasking.run)
        if app.watchers:
            sets = Sets(lasts=settings.watched_lasts, room=settings.watched_room)
            watched = WatchedActor(bus, pool, telling.tell, sets, lasts=settings.watched_lasts, log=process.log)
            tasks.start_soon(watched.run)
        tasks.start_soon(actor.tick)
        tasks.start_soon(actor.keep_alive)
        tasks.start_soon(thread.watch, settings.blocked_after, process.log, actor.hear_blocked)
        async with anyio.create_task_group() as announcing:
            announcing.start_soon(_announce, process, announcer, on_ready)
            announcing.start_soon(host.run)
            await process.stopping.wait()
            announcing.cancel_scope.cancel()
        with anyio.move_on_after(settings.drain):
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(announcer.leave)
                leaving.start_soon(tasking.drain)
                leaving.start_soon(actor.drain)
        actor.give_up()
        tasks.cancel_scope.cancel()


async def _announce(process: Process[WorkerSettings], announcer: Announcer, on_ready: Callable[[], None]) -> None:
    """Announce until cancelled; ready once the catalog knows us."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(announcer.run)
        process.health.set("catalog", ok=True)
        on_ready()


def _sides(
    process: Process[WorkerSettings], app: App, pool: str, bus: Bus, telling: Telling
) -> tuple[Runner, HandlerLoop, CallActor]:
    """Make the handlers' side and the bus's side, on two loops, and the ways between them."""
    instruments = WorkerInstruments(process.telemetry.metrics)
    frames: LoopBridge[Frame] = LoopBridge(asyncio.get_running_loop(), lambda frame: actor.hear(frame))  # noqa: PLW0108  # it is made below
    runner = Runner(
        app,
        process.settings,
        tell=frames.put,
        tracer=process.telemetry.tracer,
        instruments=instruments,
        log=process.log,
    )
    thread = HandlerLoop(runner, telling.run)
    actor = CallActor(bus, pool, process.settings, order=thread.order, instruments=instruments, log=process.log)
    return runner, thread, actor


def _load(target: str) -> App:
    if not target:
        raise ConfigurationError("MCPFLEET_TARGET: must be set: path/to/app.py or module:attribute")
    try:
        return load(target)
    except (LoadError, DeclarationError) as error:
        raise ConfigurationError(str(error)) from error
    except Exception as error:
        raise ConfigurationError(f"{target} cannot be imported:\n{_authors_traceback(error)}") from error


def _authors_traceback(error: Exception) -> str:
    """The error as Python prints it, without the frames of ours and of the import system that led there."""
    told = traceback.TracebackException.from_exception(error)
    ours = str(Path(mcpfleet.app.__file__).parent), importlib.__file__, "<frozen importlib", __file__
    own = [frame for frame in told.stack if not frame.filename.startswith(ours)]
    told.stack = traceback.StackSummary.from_list(own)
    return "".join(told.format(chain=False)).rstrip()


SERVICE: Final = Service("worker", serve, WorkerSettings)


if __name__ == "__main__":
    sys.exit(run(SERVICE))
