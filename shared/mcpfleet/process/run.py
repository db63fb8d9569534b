"""Runs services in this process: settings, signals, drain and exit code."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

import anyio
import structlog
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.process import admin, logs
from mcpfleet.process.errors import ConfigurationError, LoggedFailure, causes, leaves
from mcpfleet.process.host import loop_factory, raise_limit
from mcpfleet.process.lifecycle import Stopping
from mcpfleet.process.names import DRAINED, FAILED, INCOMPLETE, MISCONFIGURED
from mcpfleet.process.service import Pages, Process, Service
from mcpfleet.process.settings import ProcessSettings, Settings, loaded
from mcpfleet.process.settings_table import unknown_names
from mcpfleet.telemetry.setup import CLOSE_WITHIN, TelemetrySettingError

__all__ = ["Process", "Service", "run"]

GC_THRESHOLD: Final = 20_000
"""Objects that are made, and not freed, between two collections of young objects."""
FORCED_AFTER: Final = 5.0
"""Seconds after which a process that does not end on cancellation is ended from outside of its loop."""
ADMIN_CLOSES_WITHIN: Final = 2.0
"""Seconds that the admin port may take to close."""


def run(*services: Service[Any], known: Iterable[type[Settings]] = ()) -> int:
    """Run services until they end; call it from the main thread, outside of any event loop.

    The first SIGTERM or SIGINT sets `stopping`. A second one cancels the remaining work, as does the last deadline.
    An error in one service ends all. Services that share a process have different names. They share the admin port
    and logging, as the first service's settings say.

    Args:
        services: the services, at least one.
        known: further classes of settings whose names are allowed in the environment, for example those of services
            that run elsewhere with the same one.

    Returns:
        The exit code: 0 if all ended by themselves or drained, 3 if one left something behind (X72), 1 if one failed.
        It is 2 if a setting is wrong; each problem is then a line on standard error.
    """
    raise_limit()
    try:
        settings = _read(services, known)
        listening = admin.listen(settings[0].admin_bind)
    except ConfigurationError as error:
        return _misconfigured(error.problems)
    _tune_gc()
    with listening:
        try:
            return anyio.run(_main, services, settings, listening, backend_options={"loop_factory": loop_factory()})
        except Exception as error:  # errors of the process's own parts; `_outcome` tells those of services
            _tell(structlog.get_logger(), error)
            return FAILED
        finally:
            logs.flush()


async def _main(services: Sequence[Service[Any]], settings: Sequence[ProcessSettings], listening: socket.socket) -> int:
    """Give each service its process, run them, and return the exit code."""
    first = settings[0]
    logs.configure(first.log_format, first.log_level, {"service": "+".join(service.name for service in services)})
    stopping, pages = Stopping(first.last_deadline), Pages(admin.url(listening))
    try:
        processes = [
            Process(service.name, own, stopping=stopping, pages=pages)
            for service, own in zip(services, settings, strict=True)
        ]
    except TelemetrySettingError as error:
        return _misconfigured([str(error)])
    return await _Run(list(zip(services, processes, strict=True)), stopping).through(listening)


class _Run:
    """Services that run together, from start to end."""

    def __init__(self, services: Sequence[tuple[Service[Any], Process[Any]]], stopping: Stopping) -> None:
        self._services = services
        self._processes = [process for _, process in services]
        self._stopping = stopping
        self._log = self._processes[0].log
        self._work = anyio.CancelScope()
        self._failures: list[tuple[Process[Any], Exception]] = []
        self._cancelled = False

    async def through(self, listening: socket.socket) -> int:
        """Serve, hear signals, and return the exit code."""
        async with anyio.create_task_group() as group:
            await group.start(self._hear_signals)
            await self._behind_admin_port(listening)
            group.cancel_scope.cancel()
        return self._outcome()

    async def _behind_admin_port(self, listening: socket.socket) -> None:
        """Serve, with the admin port open from start to end."""
        ended = anyio.Event()
        async with anyio.create_task_group() as group:
            self._log.info("admin port opened", url=admin.url(listening))
            group.start_soon(admin.serve, listening, self._processes, ended.wait)
            await self._serve_all()
            await self._close_telemetry()
            ended.set()
            group.cancel_scope.deadline = anyio.current_time() + ADMIN_CLOSES_WITHIN

    async def _serve_all(self) -> None:
        async with anyio.create_task_group() as watch:
            watch.start_soon(self._hold_last_deadline)
            with self._work:
                async with anyio.create_task_group() as group:
                    for service, process in self._services:
                        group.start_soon(self._serve, service, process)
            watch.cancel_scope.cancel()

    async def _serve(self, service: Service[Any], process: Process[Any]) -> None:
        process.log.info("started")
        try:
            async with process.observers.during(process.settings.observer):
                await service.serve(process)
        except Exception as error:  # `_outcome` tells it once everything has ended
            self._failures.append((process, error))
            for other in self._processes:
                other.departure.cut(f"the failure of {process.name}")
            if not _is_misconfigured(error):
                process.departure.record(self._stopping.cause or "ended", process.log)
            self._work.cancel()
        except anyio.get_cancelled_exc_class():
            process.departure.record(self._stopping.cause or "ended", process.log)
            raise
        else:
            process.departure.record(self._stopping.cause or "ended by itself", process.log)
            process.log.info("ended")
            self._stopping.set(f"{process.name} ended")

    async def _hear_signals(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            async for number in signals:
                name = signal.Signals(number).name
                if self._stopping.is_set():
                    self._cancel(f"a second signal, {name}")
                else:
                    self._log.info("stopping", signal=name)
                    self._stopping.set(name)

    async def _hold_last_deadline(self) -> None:
        await self._stopping.wait()
        await anyio.sleep(self._stopping.left())
        self._cancel("the last deadline, MCPFLEET_LAST_DEADLINE")

    def _cancel(self, why: str) -> None:
        self._log.warning("work cancelled", why=why)
        self._cancelled = True
        for process in self._processes:
            process.departure.cut(why)
        self._work.cancel()
        # A thread that does not return, or shielded code, would hold the process up for ever.
        forced = threading.Timer(FORCED_AFTER, self._end_by_force)
        forced.daemon = True
        forced.start()

    def _end_by_force(self) -> None:
        self._log.error("process killed", after=FORCED_AFTER)
        for process in self._processes:
            process.departure.record(self._stopping.cause, process.log)
        logs.flush()
        os._exit(INCOMPLETE)

    async def _close_telemetry(self) -> None:
        within = 1.0 if self._cancelled else CLOSE_WITHIN
        with anyio.CancelScope(shield=True):  # `close` keeps its time by itself
            async with anyio.create_task_group() as group:
                for process in self._processes:
                    group.start_soon(anyio.to_thread.run_sync, process.telemetry.close, within)

    def _outcome(self) -> int:
        """Log all failures, and choose the exit code."""
        told = [leaf for _, error in self._failures for leaf in leaves(error)]
        if told and all(isinstance(leaf, ConfigurationError) for leaf in told):
            return _misconfigured(p for leaf in told if isinstance(leaf, ConfigurationError) for p in leaf.problems)
        for process, error in self._failures:
            _tell(process.log, error)
        if told:
            return FAILED
        ends = [process.departure.shutdown for process in self._processes]
        return DRAINED if not self._cancelled and all(end is None or end.complete for end in ends) else INCOMPLETE


def _read(services: Sequence[Service[Any]], known: Iterable[type[Settings]]) -> list[ProcessSettings]:
    """Read all settings; raises `ConfigurationError` with all problems of all of them."""
    settings: list[ProcessSettings] = []
    problems: list[str] = []
    classes = [*known, *(service.settings for service in services if isinstance(service.settings, type))]
    for service in services:
        try:
            settings.append(loaded(service.settings))
            classes.append(type(settings[-1]))
        except ConfigurationError as error:
            problems += error.problems
    problems += map(str, unknown_names(os.environ, classes))
    if problems:
        raise ConfigurationError(*problems)
    return settings


def _tell(log: FilteringBoundLogger, error: Exception) -> None:
    """Log an error with its causes, unless it is logged already; of a group, each error in it."""
    for leaf in leaves(error):
        if isinstance(leaf, LoggedFailure):
            continue
        what, *because = causes(leaf)
        log.error("service failed", error=what, because=because, exc_info=leaf)


def _is_misconfigured(error: Exception) -> bool:
    return all(isinstance(leaf, ConfigurationError) for leaf in leaves(error))


def _misconfigured(problems: Iterable[str]) -> int:
    for problem in dict.fromkeys(problems):
        sys.stderr.write(problem + "\n")
    return MISCONFIGURED


def _tune_gc() -> None:
    """Keep the garbage collector off long-lived objects, and run it less often.

    With Python's defaults it takes six per cent of an edge's time, to walk over modules again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 50)
