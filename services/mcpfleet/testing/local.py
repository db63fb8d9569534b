"""A fleet inside a test: the real services as tasks of the test's event loop, on a switch without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mcpfleet.app import App
from mcpfleet.authorization import __main__ as authorization
from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.memory.switch import Switch
from mcpfleet.catalog import __main__ as catalog
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.cli.services import SETTINGS
from mcpfleet.contracts.manifest import pool_named
from mcpfleet.contracts.permissions import pool_user
from mcpfleet.edge import __main__ as edge
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.stream import StreamEnd
from mcpfleet.process.service import Process
from mcpfleet.process.shutdown import Shutdown
from mcpfleet.subscriptions import __main__ as subscriptions
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.tasks import __main__ as tasks
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.testing.environment import AT_ONCE, check_names, durations, local_environment
from mcpfleet.testing.failure import alone, note_log, raise_alone, unwrapped
from mcpfleet.testing.server import LocalServer, LocalTransport
from mcpfleet.testing.service import AnyService, LocalService, S, Serve
from mcpfleet.worker import __main__ as worker
from mcpfleet.worker.hosting.source_app import SourceApp
from mcpfleet.worker.settings import WorkerSettings

HOST: Final = "http://localhost"
_STARTS_WITHIN: Final = 30.0
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class LocalFleet:
    """Runs a fleet inside of `async with`: it begins when every service is ready, and ends when all have drained.

    The block may be left in another task than the one that entered it, so that a fixture can hold a fleet. A service
    that fails ends alone; its error is raised at the end of the block.

    Attributes:
        edges: the edges in the order of their start, with those that ended.
        workers: the same of the workers.
        authorization: the one process of its service.
        catalog: the one process of its service.
        subscriptions: the one process of its service, the newest where it was restarted.
        tasks: the one process of its service.
        pool: the workers' pool, named after the application.
        stream_ends: how each stream of an edge ended, in order (X71).
    """

    authorization: LocalService[AuthorizationSettings]
    catalog: LocalService[CatalogSettings]
    subscriptions: LocalService[SubscriptionsSettings]
    tasks: LocalService[TasksSettings]

    def __init__(
        self,
        app: App | SourceApp,
        *,
        edges: int = 1,
        workers: int = 1,
        factor: float = 1.0,
        environment: Mapping[str, str] = _NOTHING,
        nats: bool = False,
        seed: int = 0,
    ) -> None:
        """Describe the fleet.

        Args:
            app: the application that the workers serve, or the sources.
            edges: the number of edges.
            workers: the number of workers.
            factor: divides every duration among the settings; none falls below 0.1 s.
            environment: settings of every service; this process's own environment does not count.
            nats: connect the services by an embedded NATS server instead of the switch.
            seed: decides which member of a group receives a message on the switch.

        Raises:
            ConfigurationError: a name in the environment is not a setting.
        """
        check_names(environment, SETTINGS.values())
        variables = {**AT_ONCE, **durations(SETTINGS.values(), factor), **environment}
        self.edges: list[LocalService[EdgeSettings]] = []
        self.workers: list[LocalService[WorkerSettings]] = []
        self._app = app
        self.pool = variables.get("MCPFLEET_POOL") or pool_named(app.name)
        self._numbers = edges, workers
        self._opening = local_environment(variables, pool=self.pool, nats=nats, seed=seed)
        self._services: list[AnyService] = []
        self._servers: dict[str, LocalServer] = {}
        self.stream_ends: list[StreamEnd] = []

    # -- its life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._up, self._over, self._is_in_vain = asyncio.Event(), asyncio.Event(), False
        # A task of its own: a fixture may begin and end in different tasks, which a task group does not allow.
        self._task = asyncio.create_task(self._run(), name="local fleet")
        self._task.add_done_callback(lambda _: self._up.set())
        try:
            await self._up.wait()
        except BaseException:
            await self._cancel()
            raise
        if self._task.done():
            self._task.result()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_in_vain = error is not None
        log = self.logs()  # what the services log of their own end explains no failed test
        self._over.set()
        try:
            await asyncio.wait({self._task})
        finally:
            await self._cancel()
        if error is None:
            self._task.result()
        else:
            note_log(alone(error), log)
            raise_alone(error)

    async def _cancel(self) -> None:
        self._task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        failure: Exception | None = None
        async with self._opening as self._environment, anyio.create_task_group() as self._tasks:
            try:
                await self._start()
                self._up.set()
                await self._over.wait()
            except Exception as error:  # raised below, outside the group, which would wrap it
                failure = error
            await self._end(drain=failure is None and not self._is_in_vain)
        failure = failure or next((service.error for service in self._services if service.error is not None), None)
        if failure is not None:
            failure.add_note(self.logs())
            raise failure

    async def _start(self) -> None:
        """Start everything, the services first: an edge or worker without them retries only after half a second."""
        self.authorization = self._service("authorization", AuthorizationSettings, authorization.serve_over)
        self.catalog = self._service("catalog", CatalogSettings, catalog.serve_over)
        self.subscriptions = self._subscriptions()
        self.tasks = self._service("tasks", TasksSettings, tasks.serve_over)
        await _ready(self.authorization, self.catalog, self.subscriptions, self.tasks)
        edges, workers = self._numbers
        await _ready(*[self._worker(self._app) for _ in range(workers)], *[self._edge() for _ in range(edges)])

    async def _end(self, *, drain: bool) -> None:
        """End every service: edges first, so that their last calls still have workers."""
        for group in (self.edges, self.workers, self._services):
            async with anyio.create_task_group() as tasks:
                for service in group:
                    tasks.start_soon(service.stop if drain else service.kill)

    # -- its services --------------------------------------------------------------------------------------------------

    async def add_worker(self, app: App | SourceApp | None = None) -> LocalService[WorkerSettings]:
        """Start another worker, and wait until it is ready; its application may be another version."""
        service = self._worker(app or self._app)
        await _ready(service)
        return service

    async def add_edge(self) -> LocalService[EdgeSettings]:
        """Start another edge, and wait until it is ready."""
        service = self._edge()
        await _ready(service)
        return service

    async def restart_subscriptions(self) -> None:
        """Kill subscriptions, restart it over its store, and wait until it is ready."""
        await self.subscriptions.kill()
        self.subscriptions = self._subscriptions()
        await _ready(self.subscriptions)

    def forget_ended(self) -> None:
        """Drop services that have ended without an error, in a fleet in which many come and go."""

        def is_kept(service: AnyService) -> bool:
            return service.is_running or service.error is not None

        self._services = list(filter(is_kept, self._services))
        self.edges = list(filter(is_kept, self.edges))
        self.workers = list(filter(is_kept, self.workers))
        self._servers = {edge.id: self._servers[edge.id] for edge in self.edges}

    @property
    def shutdowns(self) -> list[Shutdown]:
        """The records of the services that were stopped, in the order of their start (X72)."""
        return [service.shutdown for service in self._services if service.shutdown is not None]

    @property
    def switch(self) -> Switch:
        """The switch that connects the services; a test can freeze it, and give it faults.

        Raises:
            RuntimeError: NATS connects the services.
        """
        if self._environment.switch is None:
            raise RuntimeError("this fleet has a real NATS server: omit `nats`")
        return self._environment.switch

    def _subscriptions(self) -> LocalService[SubscriptionsSettings]:
        return self._service("subscriptions", SubscriptionsSettings, subscriptions.serve_over)

    def _worker(self, app: App | SourceApp) -> LocalService[WorkerSettings]:
        async def serve(process: Process[WorkerSettings], bus: Bus) -> None:
            await worker.serve_over(process, bus, app, self.pool)

        service = self._service("worker", WorkerSettings, serve, user=pool_user(self.pool))
        self.workers.append(service)
        return service

    def _edge(self) -> LocalService[EdgeSettings]:
        server = LocalServer()

        async def serve(process: Process[EdgeSettings], bus: Bus) -> None:
            await edge.serve_over(process, bus, server.serve, on_stream_end=self.stream_ends.append)

        service = self._service("edge", EdgeSettings, serve)
        self._servers[service.id] = server
        self.edges.append(service)
        return service

    def _service(self, name: str, settings: type[S], serve: Serve[S], user: str = "") -> LocalService[S]:
        """Start a service, as the NATS user of its name or another user."""
        service = self._environment.service(name, settings, serve, user=user or name)
        self._services.append(service)
        self._tasks.start_soon(service.run)
        return service

    # -- what a test does with it -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def client(self, edge: int = 0, *, path: str = "/mcp", **options: Any) -> AsyncIterator[Client]:
        """Connect the official client to an edge for the length of a block.

        Args:
            edge: the index of the edge.
            path: the endpoint's path.
            options: the options of `mcp.Client`.
        """
        async with self.http(edge) as http:
            transport = streamable_http_client(HOST + path, http_client=http)
            with unwrapped():
                async with Client(transport, **options) as client:
                    yield client

    def http(self, edge: int = 0) -> httpx2.AsyncClient:
        """Return an HTTP client whose requests to `http://localhost` reach an edge."""
        server = self._servers[self.edges[edge].id]
        return httpx2.AsyncClient(transport=LocalTransport(server), base_url=HOST)

    def logs(self) -> str:
        """The log lines of all services."""
        return self._environment.lines.text()

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The log lines of one event, with their fields."""
        return self._environment.lines.of(event)


async def _ready(*services: AnyService) -> None:
    """Wait until services are ready; raises the error of one that failed."""
    with anyio.move_on_after(_STARTS_WITHIN) as scope:
        for service in services:
            await service.wait_ready()
            if service.error is not None:
                raise service.error
    if scope.cancelled_caught:
        raise TimeoutError("not ready: " + ", ".join(service.why_not_ready() for service in services))
