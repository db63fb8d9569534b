"""A fleet of real processes for a test, on an embedded NATS server with its users and permissions."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

from mcpfleet.cli.child import Child, Launch, execute
from mcpfleet.cli.fleet import FleetProcesses, Plan, Route, running
from mcpfleet.cli.fork_server import ForkServer
from mcpfleet.cli.services import SETTINGS
from mcpfleet.process.names import PREFIX
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.process.settings_table import scaled
from mcpfleet.testing.environment import AT_ONCE
from mcpfleet.testing.failure import alone, note_log, raise_alone, unwrapped

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_PRELOADED: Final = (
    "alembic.command",
    "mcpfleet.authorization.__main__",
    "mcpfleet.catalog.__main__",
    "mcpfleet.cli.call",
    "mcpfleet.cli.listing",
    "mcpfleet.cli.operate_tasks",
    "mcpfleet.cli.services",
    "mcpfleet.cli.task_commands",
    "mcpfleet.cli.watch",
    "mcpfleet.edge.__main__",
    "mcpfleet.store.migrate",
    "mcpfleet.subscriptions.__main__",
    "mcpfleet.tasks.__main__",
    "mcpfleet.worker.__main__",
)
"""The modules that every process of a test's fleet has imported."""


def launcher() -> Launch:
    """Return what starts the processes of a fleet here: a fork server on Linux, a new interpreter elsewhere."""
    return _server().launch if sys.platform == "linux" else execute


@cache
def _server() -> ForkServer:
    """The server of this process, from its first fleet to its end."""
    server = ForkServer.executed(_PRELOADED)
    atexit.register(server.close)
    return server


class Fleet:
    """Runs a fleet inside `async with`: it begins when every edge is ready, and ends when all processes have drained.

    A process that ends stays ended, so that a test decides which processes run.
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
            edges: the number of edges.
            workers: the number of workers.
            services: the number of processes that each run every service.
            apart: run each service in a process of its own instead.
            factor: divides every duration among the settings; none falls below 0.1 s.
            environment: settings for every process.
            own: settings for a single process, by its name: `edge 1`, `worker 2`, `services`.
            route: routes processes to NATS over links that the test can cut.
            store: the URL of an existing database; None embeds SQLite in a file of its own.
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
            note_log(alone(error), self.logs())
        with unwrapped():
            await self._stack.__aexit__(kind, error, trace)
        if error is not None:
            raise_alone(error)

    @property
    def urls(self) -> list[str]:
        """The edges' URLs."""
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
        """The process of a service, where each service has its own."""
        [found] = [child for child in self.service_processes if child.name == name]
        return found

    @property
    def service_processes(self) -> list[Child]:
        """The processes that each run every service, or one service each."""
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
        """The settings with which one of the fleet's NATS users connects."""
        return self._running.nats_settings(user)

    async def restart_nats(self) -> None:
        """Kill the NATS server, and restart it on the same port."""
        assert self._running.nats is not None
        await self._running.nats.child.kill()
        await self._running.nats.start()

    async def restart(self, child: Child, *, drain: bool = True) -> None:
        """Drain or kill a process, and restart it; returns once an edge is ready, at another URL."""
        await self._running.restart(child, drain=drain)

    async def add_worker(self, target: str | Path) -> Child:
        """Start another worker of the pool, and wait until it is ready; its application may be another version."""
        return await self._running.add_worker(str(target))

    def pause(self, child: Child) -> None:
        """Pause a process with SIGSTOP: it neither ends nor answers."""
        pause(child.pid)

    def resume(self, child: Child) -> None:
        """Continue a paused process."""
        child.signal(signal.SIGCONT)

    def logs(self) -> str:
        """The log lines of all processes."""
        return "\n".join(f"== {path.stem}\n{path.read_text()}" for path in sorted(self._logs.glob("*.log")))

    @property
    def _running(self) -> FleetProcesses:
        assert self._processes is not None, "the fleet runs only inside `async with`"
        return self._processes


def _field(variable: str) -> str:
    return variable.removeprefix(PREFIX).lower()


_WITHIN: Final = 1.0
"""Seconds to wait until a process has stopped; it may be waiting for a disk."""


def pause(pid: int) -> None:
    """Pause a process with SIGSTOP, if it still runs. On Linux, all of its threads have stopped when this returns.

    The signal alone does not suffice: a thread on another core may still answer something.
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
