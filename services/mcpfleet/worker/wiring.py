"""The parts of a worker, each made once and given what it needs."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from mcpfleet.bus.bus import Bus
from mcpfleet.process.run import Process
from mcpfleet.telemetry.instruments import WorkerInstruments
from mcpfleet.telemetry.trace import TraceSampling
from mcpfleet.worker.announcer import Announcer
from mcpfleet.worker.bus_side import BusSide
from mcpfleet.worker.calls.actor import CallActor
from mcpfleet.worker.files import AppFiles
from mcpfleet.worker.handler_loop import HandlerLoop
from mcpfleet.worker.host import WorkerHost
from mcpfleet.worker.loop_bridge import LoopBridge
from mcpfleet.worker.permits import PermitActor, PermitCalls
from mcpfleet.worker.publisher import Publisher
from mcpfleet.worker.router import FrameRouter
from mcpfleet.worker.runner import HandlerTable, Runner, RunTelemetry
from mcpfleet.worker.served import ServedApp
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.slots import Slots
from mcpfleet.worker.tasks.actor import TaskActor


class Worker(NamedTuple):
    """The parts by which a worker is started, drained and shown."""

    side: BusSide
    calls: CallActor
    tasks: TaskActor
    thread: HandlerLoop
    runner: Runner
    announcer: Announcer
    host: WorkerHost
    files: AppFiles
    permits: PermitActor
    permit_calls: PermitCalls


def wire(
    process: Process[WorkerSettings], bus: Bus, app: ServedApp, pool: str, thread: HandlerLoop | None = None
) -> Worker:
    """Make a worker on the bus's loop; nothing of it runs yet.

    Args:
        process: the worker's.
        bus: not running yet, or running.
        app: the application whose functions it runs.
        pool: the pool that it belongs to.
        thread: runs the functions, within the application's lifespans; by default there are none.
    """
    thread = thread or HandlerLoop()
    process.observers.add(app.observers)
    settings, telemetry, log = process.settings, process.telemetry, process.log
    side = BusSide(bus, pool, settings, WorkerInstruments(telemetry.metrics), log)
    slots, handlers = Slots(settings.slots, side.instruments), HandlerTable(app)
    calls = CallActor(side, slots, thread.order)
    tasks = TaskActor(side, slots, calls, thread.order)
    publisher = Publisher(bus, pool, doubtful=settings.bus_question_every + settings.bus_dead_after, log=log)
    sampling = TraceSampling.of(settings.sample_ratio if telemetry.enabled else 0.0)
    files = AppFiles(app, settings, log)
    announcer = Announcer(
        side,
        app.manifest(),
        content=files.content,
        on_counted=publisher.counted,
        tracer=telemetry.tracer,
        sampling=sampling,
    )
    permit_calls = PermitCalls(settings.threads, log)
    permits = PermitActor(side, permit_calls)
    host = WorkerHost(handlers, calls, tasks, announcer, publisher=publisher, permits=permits)
    frames = LoopBridge(asyncio.get_running_loop(), FrameRouter(calls, tasks).route)
    recorded = RunTelemetry(telemetry.tracer, side.instruments, log, process.observers)
    runner = Runner(
        handlers, settings, recorded, tell=frames.put, publish=host.publish, requests=tasks.requests,
        lifespan=thread.lifespan,
    )  # fmt: skip
    return Worker(side, calls, tasks, thread, runner, announcer, host, files, permits, permit_calls)
