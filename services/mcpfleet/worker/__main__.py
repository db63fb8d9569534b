"""Wires a worker, and runs it: `python -m mcpfleet.worker`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

import anyio

from mcpfleet.app import App, DeclarationError, load
from mcpfleet.app.lifespan import LifespanFailed
from mcpfleet.app.load_problem import load_problem
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.discovery import Discovery
from mcpfleet.bus.service import bus_of, prove_drained, watch_link
from mcpfleet.console.publish import publish_stats
from mcpfleet.contracts.manifest import pool_named
from mcpfleet.contracts.permissions import pool_user
from mcpfleet.process.errors import ConfigurationError, leaves
from mcpfleet.process.logs import say_ready
from mcpfleet.process.run import Process, Service, run
from mcpfleet.process.shutdown import BUS, LEASES, Departure
from mcpfleet.sources.names import is_server_file, is_source
from mcpfleet.worker.announcer import Announcer
from mcpfleet.worker.handler_loop import HandlerLoop
from mcpfleet.worker.hosting.source_app import SourceApp, source_app_of
from mcpfleet.worker.loop_bridge import LoopBridge
from mcpfleet.worker.served import ServedApp
from mcpfleet.worker.settings import WorkerSettings
from mcpfleet.worker.watched import WatchedActor, WatcherCalls
from mcpfleet.worker.wiring import Worker, wire


async def serve(process: Process[WorkerSettings]) -> None:
    """Run a worker until it is told to stop, and drain it: its calls are finished first."""
    await serve_app(process, _load(process.settings.target))


async def serve_app(process: Process[WorkerSettings], app: App | SourceApp, *, tells_silent_tools: bool = True) -> None:
    """The same, for an application that is loaded, or for sources; the log need not tell of silent tools."""
    pool = process.settings.pool or pool_named(app.name)
    say = partial(say_ready, process.log)
    await serve_over(process, bus_of(process, pool_user(pool)), app, pool, say, tells_silent_tools=tells_silent_tools)


async def serve_over(
    process: Process[WorkerSettings],
    bus: Bus,
    app: ServedApp | SourceApp,
    pool: str,
    on_ready: Callable[[], None] = lambda: None,
    *,
    tells_silent_tools: bool = True,
) -> None:
    """Run a worker over a bus, for an application that is loaded.

    Args:
        process: its process.
        bus: connects it.
        app: the application, or the sources that stand for one.
        pool: its pool.
        on_ready: called once it is ready.
        tells_silent_tools: whether the log warns of tools without a description.

    Raises:
        ConfigurationError: the application cannot be served.
        LifespanFailed: one of its lifespans failed; the log has it.
    """
    served: ServedApp = app.served_by(process, bus, pool) if isinstance(app, SourceApp) else app
    try:
        served.check_documents()
        lifespans = served.lifespans()
    except DeclarationError as error:
        raise ConfigurationError(str(error)) from error
    if tells_silent_tools:
        _warn_of_silent_tools(process, served)
    told: list[LifespanFailed] = []

    def fail(failure: LifespanFailed) -> None:
        """Tell the operator, and drain: the handlers may lack what the lifespan held."""
        process.log.error("lifespan failed", error=str(failure), exc_info=failure.__cause__)
        told.append(failure)
        process.stopping.set()

    try:
        thread = HandlerLoop(lifespans, LoopBridge(asyncio.get_running_loop(), fail).put)
        await _run(process, wire(process, bus, served, pool, thread), served, on_ready)
    except ExceptionGroup as group:
        failed = [leaf for leaf in leaves(group) if isinstance(leaf, LifespanFailed)]
        if len(failed) < len(leaves(group)):
            raise
        fail(failed[0])
    if told:
        raise told[0]


async def _run(process: Process[WorkerSettings], worker: Worker, app: ServedApp, on_ready: Callable[[], None]) -> None:
    settings, bus, pool = process.settings, worker.side.bus, worker.side.pool
    watch_link(process, bus)
    process.health.set("catalog", ok=False, why="the catalog has not counted this worker yet")
    worker.files.check()
    _watch_departure(process.departure, worker, app)
    calls, tasks, thread, announcer = worker.calls, worker.tasks, worker.thread, worker.announcer
    watchers = WatcherCalls(app, settings.threads, process.log)
    async with anyio.create_task_group() as group:
        await group.start(bus.run)
        await Discovery(bus, process.name).listen()
        group.start_soon(publish_stats, process, bus, pool)
        if not await _enter(
            process, partial(group.start, thread.run, worker.runner, watchers.run, worker.permit_calls.run)
        ):
            group.cancel_scope.cancel()
            return
        worker.host.begin()
        group.start_soon(worker.permits.run)
        await worker.permits.offer(app.permitters)
        await calls.listen({each.definition.digest: each.definition.kind for each in app.handlers})
        await group.start(tasks.run)
        if app.watchers:
            group.start_soon(WatchedActor(worker.side, watchers.tell).run)
        group.start_soon(calls.tick)
        group.start_soon(calls.keep_alive)
        group.start_soon(thread.watch, settings.blocked_after, process.log, calls.hear_blocked)
        async with anyio.create_task_group() as announcing:
            announcing.start_soon(_announce, process, announcer, on_ready)
            announcing.start_soon(worker.host.run)
            announcing.start_soon(worker.files.run)
            await process.stopping.wait()
            announcing.cancel_scope.cancel()
        departure = process.departure
        with departure.phase("work"):
            with anyio.move_on_after(settings.drain) as patience:
                async with anyio.create_task_group() as leaving:
                    leaving.start_soon(announcer.leave)
                    leaving.start_soon(tasks.drain)
                    leaving.start_soon(calls.drain)
            if patience.cancelled_caught:
                departure.remain()
        if not tasks.count_held():
            departure.prove(LEASES)
        calls.give_up()
        departure.calls_finished, departure.calls_cancelled = calls.finished, calls.cancelled
        departure.calls_cut, departure.tasks_released = calls.cut, tasks.released
        with departure.phase("lifespans"):
            await thread.leave(worker.runner)
        await prove_drained(process, bus)
        group.cancel_scope.cancel()


def _watch_departure(departure: Departure, worker: Worker, app: ServedApp) -> None:
    """Let the account of the worker's end know what it runs, by the names of the handlers."""

    def named(work: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
        names = {each.definition.digest: each.definition.name for each in app.handlers}
        return [(names.get(definition, definition), began) for definition, began in work]

    departure.watch("call", lambda: named(worker.calls.held()))
    departure.watch("task", lambda: named(worker.tasks.held()))
    departure.expect(BUS, LEASES)


async def _enter(process: Process[WorkerSettings], start: Callable[[], Awaitable[None]]) -> bool:
    """Start the handlers' loop with the lifespans; returns False if the process is to stop before they are entered."""
    process.health.set("lifespan", ok=False, why="the application's lifespan is not entered yet")
    is_started = False
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_when_stopping, process, tasks.cancel_scope)
        await start()
        is_started = True
        tasks.cancel_scope.cancel()
    process.health.set("lifespan", ok=is_started)
    return is_started


async def _cancel_when_stopping(process: Process[WorkerSettings], scope: anyio.CancelScope) -> None:
    await process.stopping.wait()
    scope.cancel()


def _warn_of_silent_tools(process: Process[WorkerSettings], app: ServedApp) -> None:
    """Warn of tools without a description: a model then knows only their names."""
    tools = [each.definition for each in app.handlers if each.definition.kind == "tool"]
    silent = [tool.name for tool in tools if not tool.wire.get("description")]
    if silent:
        process.log.warning("tools without description", tools=silent, remedy="write docstrings")


async def _announce(process: Process[WorkerSettings], announcer: Announcer, on_ready: Callable[[], None]) -> None:
    """Announce until cancelled; ready once the catalog knows us."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(announcer.run)
        process.health.set("catalog", ok=True)
        on_ready()


def _load(target: str) -> App | SourceApp:
    if not target:
        raise ConfigurationError("MCPFLEET_TARGET: must be set: path/to/app.py, module:attribute or fleet.toml:NAME")
    if is_source(target) or is_server_file(target):
        return source_app_of(target, os.environ)
    try:
        return load(target)
    except Exception as error:
        raise ConfigurationError(load_problem(target, error).text) from error


SERVICE: Final = Service("worker", serve, WorkerSettings)


if __name__ == "__main__":
    sys.exit(run(SERVICE))
