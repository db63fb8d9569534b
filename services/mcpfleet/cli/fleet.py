"""A whole fleet on this machine: NATS, one process of all services, and a process for each edge and worker."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import anyio
from anyio.abc import TaskStatus
from pydantic import SecretStr

from mcpfleet.cli.app_pool import SETTING, pool_of
from mcpfleet.cli.child import OF_SERVICES, Child, Launch, execute, inherited
from mcpfleet.cli.embedded_nats import EmbeddedNats
from mcpfleet.cli.first_worker import FirstWorker
from mcpfleet.cli.import_report import REPORT, ImportReport
from mcpfleet.cli.services import STORED
from mcpfleet.contracts.permissions import pool_user
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.keys import make_keys
from mcpfleet.process.names import MODULE
from mcpfleet.process.settings import ProcessSettings

OPERATOR: Final = "operator"
_EDGE: Final = "edge"
_NATS_URL: Final = "MCPFLEET_NATS_URL"
_BIND: Final = "MCPFLEET_BIND"
_READY_WITHIN: Final = 60.0
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

Keep: TypeAlias = Callable[[Child], Coroutine[Any, Any, None]]
"""Runs one process, for as long as it should run."""


Route: TypeAlias = Callable[[str, str], Awaitable[str]]
"""Takes a process's name and NATS' URL; returns the URL by which that process reaches NATS."""


@dataclass(frozen=True)
class Plan:
    """The processes of a fleet, and their settings."""

    target: str
    """The application: `path/to/app.py` or `module:attribute`."""
    edges: int = 1
    workers: int = 1
    services: int = 1
    """Processes that each run every service."""
    apart: bool = False
    """Each service has its own process instead, so that a test can stop one of them."""
    host: str = "127.0.0.1"
    """The address that the edges listen on."""
    port: int = 0
    """The first edge's port; the other edges take the next ones. 0 takes free ports."""
    nats_url: str | None = None
    """A running NATS server without users; None embeds one."""
    store_url: str | None = None
    """An existing database; None embeds SQLite."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Settings for every process."""
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings for a single process, by its name, for example `edge 2`."""
    route: Route | None = None
    """Routes processes to NATS another way, for a test that cuts the link."""
    logs: Path | None = None
    """The folder with a file of each process's standard error; None shows it on ours."""
    launch: Launch = execute
    """Starts the processes that are ours."""
    first: FirstWorker | None = None
    """The first worker, which has imported the application. All workers then leave a report of what they import, for
    `report_of`, and print no mistake of it."""
    settings: ProcessSettings = field(default_factory=ProcessSettings)


class StartFailed(ConfigurationError):
    """Raised when a process of the fleet ended before the fleet was ready."""


class FleetProcesses:
    """The processes of a fleet; `running` starts and ends it."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.pool = ""
        """The workers' pool, known from `start_nats` on."""
        self._directory = directory
        self._passwords: dict[str, str] = {}
        self.nats: EmbeddedNats | None = None
        self.service_processes: list[Child] = []
        self.edges: list[Child] = []
        self.workers: list[Child] = []
        self.passing: list[Child] = []
        """Workers that are not, or no longer, among the fleet's: they end with it."""
        self._is_up = False
        self._reports: dict[Child, Path] = {}

    @property
    def services(self) -> Child:
        """The first process of the services."""
        return self.service_processes[0]

    @property
    def urls(self) -> list[str]:
        """The URLs of the edges that are ready."""
        return [edge.url for edge in self.edges if edge.url]

    async def start_nats(self) -> None:
        """Start the embedded NATS, if the plan wants one, and describe the processes that use it.

        Raises:
            ConfigurationError: NATS could not be started, the application cannot be imported, or MCPFLEET_POOL is no
                name of a pool.
        """
        plan = self.plan
        imported = None if plan.first is None else plan.first.report
        self.pool = await pool_of(plan.target, plan.launch, {**inherited(), **plan.environment}, imported)
        users = (*STORED, _EDGE, OPERATOR, pool_user(self.pool))
        self._passwords = {user: secrets.token_urlsafe(24) for user in users}
        # The services share a process, and a password; workers, the least trusted, have their own.
        self._passwords |= dict.fromkeys(STORED, self._passwords[STORED[0]])
        if plan.nats_url is None:
            self.nats = EmbeddedNats(self._directory, [self.pool], plan.settings, self._passwords.__getitem__)
            await self.nats.start()
        secret = {name: value for name, value in os.environ.items() if name.startswith(OF_SERVICES)}
        store = {**secret, "MCPFLEET_STORE_URL": self.plan.store_url or f"sqlite:///{self._directory / 'store.db'}"}
        if self.plan.apart:
            await self._migrate(store)
            self.service_processes = [self._child(each, ["mcpfleet.cli", each], each, store) for each in STORED]
        else:
            names = ["services", *(f"services {number + 1}" for number in range(1, self.plan.services))]
            module = ["mcpfleet.cli.services"]
            self.service_processes = [self._child(name, module, STORED[0], store) for name in names]
        self.workers = [self._worker(number, self.plan.target) for number in range(self.plan.workers)]
        if plan.first is not None:
            plan.first.stand_for(self.workers[0])
            self._reports[self.workers[0]].write_text(plan.first.report.model_dump_json())
        self.edges = [self._edge(number) for number in range(self.plan.edges)]
        if self.plan.route is not None:
            for child in (*self.service_processes, *self.workers, *self.edges):
                child.environment[_NATS_URL] = await self.plan.route(child.name, child.environment[_NATS_URL])

    async def _migrate(self, store: Mapping[str, str]) -> None:
        """Bring the store up to date; the process of all services does so by itself.

        Raises:
            StartFailed: the migration failed; its lines above say why.
        """
        child = self._child("migrate", ["mcpfleet.cli", "migrate"], STORED[0], store)
        await child.start()
        if await child.listen() != 0:
            raise StartFailed("the store could not be brought up to date: the lines above say why")

    async def run(self, keep: Keep, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run every process until cancelled; it counts as started once every edge is ready.

        Args:
            keep: runs one process, for as long as it should run.
            task_status: is told when the fleet is up.
        """
        async with anyio.create_task_group() as self._tasks:
            self._keep = keep
            for child in (*self.service_processes, *self.workers, *self.edges):
                self._tasks.start_soon(keep, child)
            with anyio.move_on_after(_READY_WITHIN) as patience:
                for edge in self.edges:
                    await edge.ready.wait()
            if patience.cancelled_caught:
                raise StartFailed(
                    f"the fleet was not ready within {_READY_WITHIN:g} s: the lines above say what it waits for"
                )
            self._is_up = True
            task_status.started()

    async def add_worker(self, target: str) -> Child:
        """Start another worker of the pool, and wait until it is ready; its application may be another version."""
        worker = self._worker(len(self.workers), target)
        self.workers.append(worker)
        self._tasks.start_soon(self._keep, worker)
        with anyio.fail_after(_READY_WITHIN):
            await worker.ready.wait()
        return worker

    async def restart(self, child: Child, *, drain: bool) -> None:
        """End a process and start it again; returns once a worker or an edge is ready."""
        await (child.stop(self.plan.settings.last_deadline) if drain else child.kill())
        child.ready = anyio.Event()
        self._tasks.start_soon(self._keep, child)
        if child not in self.service_processes:  # they print nothing; other processes wait for them
            with anyio.fail_after(_READY_WITHIN):
                await child.ready.wait()

    async def keep(self, child: Child) -> None:
        """Run a process once.

        Raises:
            StartFailed: it ended before the fleet was up; its standard error says why.
        """
        if child in self.edges and child.url:
            # Clients know the port that it took.
            child.environment[_BIND] = f"{child.environment[_BIND].rpartition(':')[0]}:{urlsplit(child.url).port}"
        await child.start()
        code = await child.listen()
        if not self._is_up:
            raise StartFailed(f"{child.name} ended with code {code} before the fleet was ready: see its last lines")

    async def kill(self) -> None:
        """End every process at once."""
        nats = [self.nats.child] if self.nats is not None else []
        for child in (*self.edges, *self.workers, *self.passing, *self.service_processes, *nats):
            await child.kill()

    async def stop(self) -> None:
        """Drain every process: edges first, so that their last calls still have workers, and NATS last.

        A fleet that was never up has nothing to drain.
        """
        if not self._is_up:
            await self.kill()
            return
        nats = [self.nats.child] if self.nats is not None else []
        groups = self.edges, [*self.workers, *self.passing], self.service_processes, nats
        async with anyio.create_task_group() as hearing:
            for group in groups:
                for child in group:
                    hearing.start_soon(child.hear_on)
            for group in groups:
                async with anyio.create_task_group() as tasks:
                    for child in group:
                        tasks.start_soon(child.stop, self.plan.settings.last_deadline)
            hearing.cancel_scope.cancel()

    def nats_settings(self, user: str) -> ProcessSettings:
        """The settings with which a user of the embedded NATS server connects."""
        assert self.nats is not None
        password = SecretStr(self._passwords[user])
        return self.plan.settings.model_copy(update={"nats_url": self.nats.url, "nats_password": password})

    def successor(self, number: int) -> Child:
        """Describe a worker that may take the place of the worker with this index; it is not started."""
        return self._worker(number, self.plan.target)

    def report_of(self, worker: Child) -> ImportReport | None:
        """Return what a worker found when it imported the application; None before, or if the plan has no reports."""
        try:
            return ImportReport.model_validate_json(self._reports[worker].read_bytes())
        except (LookupError, OSError, ValueError):
            return None

    def _worker(self, number: int, target: str) -> Child:
        command, report = ["mcpfleet.cli", "worker", target], None
        if self.plan.first is not None:
            report = self._directory / f"import-{len(self._reports)}.json"
            command = ["mcpfleet.cli.dev_worker", target, str(report)]
        own = {SETTING: self.pool} | ({} if report is None else {REPORT: str(report)})
        child = self._child(f"worker {number + 1}", command, pool_user(self.pool), own)
        if report is not None:
            self._reports[child] = report
        return child

    def _edge(self, number: int) -> Child:
        port = self.plan.port + number if self.plan.port else 0
        bind = f"[{self.plan.host}]:{port}" if ":" in self.plan.host else f"{self.plan.host}:{port}"
        environment = {_BIND: bind, "MCPFLEET_SEAL_KEYS": str(make_keys(self._directory))}
        return self._child(f"edge {number + 1}", ["mcpfleet.cli", "edge"], _EDGE, environment)

    def _child(self, name: str, module: list[str], user: str, environment: Mapping[str, str] = _NOTHING) -> Child:
        own = {
            "MCPFLEET_EMBEDDED": "true",
            "MCPFLEET_ADMIN_BIND": "127.0.0.1:0",
            **self._nats_environment(user),
            **environment,
            **self.plan.environment,
            **self.plan.own.get(name, _NOTHING),
        }
        return Child(
            name,
            [*MODULE, *module],
            {**inherited(), **own},
            log=self.plan.logs / f"{name}.log" if self.plan.logs else None,
            launch=self.plan.launch,
        )

    def _nats_environment(self, user: str) -> dict[str, str]:
        if self.nats is None:
            return {_NATS_URL: self.plan.nats_url or ""}
        return {_NATS_URL: self.nats.url, "MCPFLEET_NATS_PASSWORD": self._passwords[user]}


@asynccontextmanager
async def running(plan: Plan, keep: Callable[[FleetProcesses], Keep] | None = None) -> AsyncIterator[FleetProcesses]:
    """Run a fleet for the length of a block: it is up when the block begins, and has drained when the block ends.

    Args:
        plan: its processes and settings.
        keep: returns what keeps one process running; by default no process restarts.

    Raises:
        StartFailed: a process ended before the fleet was up.
        ConfigurationError: NATS could not be started.
    """
    with tempfile.TemporaryDirectory(prefix="mcpfleet-") as directory:
        fleet = FleetProcesses(plan, Path(directory))
        async with anyio.create_task_group() as tasks:
            try:
                await fleet.start_nats()
                await tasks.start(fleet.run, keep(fleet) if keep else fleet.keep)
                yield fleet
            finally:
                with anyio.CancelScope(shield=True):
                    await fleet.stop()
                tasks.cancel_scope.cancel()
