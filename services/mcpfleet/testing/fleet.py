"""A fleet of real processes for the length of a test, on an embedded NATS with its users and permissions."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

from mcpfleet.cli.child import Child
from mcpfleet.cli.fleet import FleetProcesses, Plan, Route, running
from mcpfleet.cli.services import SETTINGS
from mcpfleet.process.settings import PREFIX, ProcessSettings
from mcpfleet.process.settings_table import scaled
from mcpfleet.testing.environment import AT_ONCE
from mcpfleet.testing.fork_server import launcher

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Fleet:
    """Runs a fleet inside of `async with`, which begins when every edge is ready and ends when all has drained.

    A process that ends stays ended, so that a test decides what lives.
    """

    def __init__(
        self,
        target: str | Path,
        *,
        edges: int = 1,
        workers: int = 1,
        services: int = 1,
        apart: bool = False,
        factor: float = 1.0,
        environment: Mapping[str, str] = _NOTHING,
        own: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        route: Route | None = None,
        store: str | None = None,
    ) -> None:
        """Describe the fleet.

        Args:
            target: the application.
            edges: how many edges.
            workers: how many workers.
            services: how many processes that run every service each.
            apart: run each service in a process of its own instead.
            factor: what every duration among the settings is divided by; none gets below 0.1 s.
            environment: settings for every process.
            own: settings for one process alone, by its name: `edge 1`, `worker 2`, `services`.
            route: leads processes to NATS another way, over links that the test can sever.
            store: the URL of a database that is there already; SQLite in a file of its own where none is given.
        """
        durations = {name: value for cls in SETTINGS.values() for name, value in scaled(cls, factor).items()}
        if factor == 1.0:
            durations = {}
        of_all = {name: value for name, value in durations.items() if _field(name) in ProcessSettings.model_fields}
        self._stack = AsyncExitStack()
        self._plan = Plan(
            target=str(target),
            edges=edges,
            workers=workers,
            services=services,
            apart=apart,
            environment={**AT_ONCE, **durations, **environment},
            own=own,
            route=route,
            store_url=store,
            launch=launcher(),
            settings=ProcessSettings(**{_field(name): value for name, value in of_all.items()}),  # type: ignore[arg-type]  # pydantic reads text
        )
        self._processes: FleetProcesses | None = None

    async def __aenter__(self) -> Self:
        self._logs = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpfleet-logs-")))
        plan = replace(self._plan, logs=self._logs)
        try:
            self._processes = await self._stack.enter_async_context(running(plan))
        except BaseException as error:
            error.add_note(self.logs())
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(self.logs())
        await self._stack.__aexit__(kind, error, trace)

    @property
    def urls(self) -> list[str]:
        """Where each edge is reached."""
        return self._running.urls

    @property
    def edges(self) -> list[Child]:
        """The edges' processes."""
        return self._running.edges

    @property
    def workers(self) -> list[Child]:
        """The workers' processes."""
        return self._running.workers

    @property
    def services(self) -> Child:
        """The process of all services, or the first of them."""
        return self._running.services

    def service(self, name: str) -> Child:
        """The process of one service, where each has its own."""
        [found] = [child for child in self.service_processes if child.name == name]
        return found

    @property
    def service_processes(self) -> list[Child]:
        """The processes that run every service each, or each its own."""
        return self._running.service_processes

    @property
    def nats(self) -> Child:
        """The NATS server's process."""
        assert self._running.nats is not None
        return self._running.nats.child

    @property
    def pool(self) -> str:
        """The name of the workers' pool."""
        return self._running.pool

    def nats_settings(self, user: str) -> ProcessSettings:
        """The settings with which a NATS user of the fleet connects."""
        return self._running.nats_settings(user)

    async def restart_nats(self) -> None:
        """Kill the NATS server, and start it again where it was."""
        assert self._running.nats is not None
        await self._running.nats.child.kill()
        await self._running.nats.start()

    async def restart(self, child: Child, *, drain: bool = True) -> None:
        """Have a process drain, or kill it, and start it again; an edge is ready then, at another URL."""
        await self._running.restart(child, drain=drain)

    async def add_worker(self, target: str | Path) -> Child:
        """Start one more worker in the pool, and wait until it is ready; its application may be another version."""
        return await self._running.add_worker(str(target))

    def pause(self, child: Child) -> None:
        """Stop a process where it is; it neither ends nor answers."""
        pause(child.pid)

    def resume(self, child: Child) -> None:
        """Let a paused process go on."""
        child.signal(signal.SIGCONT)

    def logs(self) -> str:
        """What the processes have logged."""
        return "\n".join(f"== {path.stem}\n{path.read_text()}" for path in sorted(self._logs.glob("*.log")))

    @property
    def _running(self) -> FleetProcesses:
        assert self._processes is not None, "the fleet runs inside of `async with` only"
        return self._processes


def _field(variable: str) -> str:
    return variable.removeprefix(PREFIX).lower()


_WITHIN: Final = 1.0
"""Seconds in which a process stands still, or waits for a disk."""


def pause(pid: int) -> None:
    """Have a process stand still, if it still runs; it does when this returns, where the system says so (Linux).

    The signal only begins it: a thread that runs on another core may still answer something meanwhile.
    """
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + _WITHIN
    while not _stands_still(pid) and time.monotonic() < until:
        time.sleep(0.001)


def _stands_still(pid: int) -> bool:
    for each in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state = each.read_text().rpartition(")")[2].split()[0]
        except OSError:  # the thread has ended
            continue
        if state != "T":
            return False
    return True
