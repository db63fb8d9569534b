"""A fleet inside of a test: the real services, as tasks of the test's own event loop, on a switch without sockets."""

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
from mcpfleet.contracts.permissions import pool_user
from mcpfleet.edge import __main__ as edge
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.process.service import Process
from mcpfleet.subscriptions import __main__ as subscriptions
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.tasks import __main__ as tasks
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.testing.environment import AT_ONCE, POOL, check_names, durations, local_environment
from mcpfleet.testing.server import LocalServer, LocalTransport
from mcpfleet.testing.service import AnyService, LocalService, S, Serve
from mcpfleet.worker import __main__ as worker
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
    """

    authorization: LocalService[AuthorizationSettings]
    catalog: LocalService[CatalogSettings]
    subscriptions: LocalService[SubscriptionsSettings]
    tasks: LocalService[TasksSettings]

    def __init__(
        self,
        app: App,
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
            app: the application that the workers serve.
            edges: how many edges.
            workers: how many workers.
            factor: what every duration among the settings is divided by; none gets below 0.1 s.
            environment: settings of every service; what is in this process's own environment does not count.
            nats: connect the services by an embedded NATS server, instead of the switch.
            seed: decides on the switch which member of a group hears a message.

        Raises:
            ConfigurationError: a name in the environment is no setting.
        """
        check_names(environment, SETTINGS.values())
        variables = {**AT_ONCE, **durations(SETTINGS.values(), factor), **environment}
        self.edges: list[LocalService[EdgeSettings]] = []
        self.workers: list[LocalService[WorkerSettings]] = []
        self._app = app
        self._numbers = edges, workers
        self._opening = local_environment(variables, nats=nats, seed=seed)
        self._services: list[AnyService] = []
        self._servers: dict[str, LocalServer] = {}

    # -- its life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._up, self._over, self._is_in_vain = asyncio.Event(), asyncio.Event(), False
        # A task of its own: the ends of a fixture are in two tasks, which no task group survives.
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
        self._over.set()
        try:
            await asyncio.wait({self._task})
        finally:
            await self._cancel()
        if error is None:
            self._task.result()
        else:
            error.add_note(self.logs())

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
            except Exception as error:  # raised below, outside of the group, which would wrap it
                failure = error
            await self._end(drain=failure is None and not self._is_in_vain)
        failure = failure or next((service.error for service in self._services if service.error is not None), None)
        if failure is not None:
            failure.add_note(self.logs())
            raise failure

    async def _start(self) -> None:
        """Start everything; the services first, since what asks in vain asks again only after half a second."""
        self.authorization = self._service("authorization", AuthorizationSettings, authorization.serve_over)
        self.catalog = self._service("catalog", CatalogSettings, catalog.serve_over)
        self.subscriptions = self._subscriptions()
        self.tasks = self._service("tasks", TasksSettings, tasks.serve_over)
        await _ready(self.authorization, self.catalog, self.subscriptions, self.tasks)
        edges, workers = self._numbers
        await _ready(*[self._worker(self._app) for _ in range(workers)], *[self._edge() for _ in range(edges)])

    async def _end(self, *, drain: bool) -> None:
        """End every service: edges first, so that their last calls still find workers."""
        for group in (self.edges, self.workers, self._services):
            async with anyio.create_task_group() as tasks:
                for service in group:
                    tasks.start_soon(service.stop if drain else service.kill)

    # -- its services --------------------------------------------------------------------------------------------------

    async def add_worker(self, app: App | None = None) -> LocalService[WorkerSettings]:
        """Start one more worker, perhaps with another version of the application; it is ready then."""
        service = self._worker(app or self._app)
        await _ready(service)
        return service

    async def add_edge(self) -> LocalService[EdgeSettings]:
        """Start one more edge; it is ready then."""
        service = self._edge()
        await _ready(service)
        return service

    async def restart_subscriptions(self) -> None:
        """End subscriptions where it is, and start it again over its store; it is ready then."""
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
    def switch(self) -> Switch:
        """What connects the services: it freezes, and meets faults, as a test likes.

        Raises:
            RuntimeError: NATS connects them.
        """
        if self._environment.switch is None:
            raise RuntimeError("this fleet has a real NATS: leave `nats` out")
        return self._environment.switch

    def _subscriptions(self) -> LocalService[SubscriptionsSettings]:
        return self._service("subscriptions", SubscriptionsSettings, subscriptions.serve_over)

    def _worker(self, app: App) -> LocalService[WorkerSettings]:
        async def serve(process: Process[WorkerSettings], bus: Bus) -> None:
            await worker.serve_over(process, bus, app, POOL)

        service = self._service("worker", WorkerSettings, serve, user=pool_user(POOL))
        self.workers.append(service)
        return service

    def _edge(self) -> LocalService[EdgeSettings]:
        server = LocalServer()

        async def serve(process: Process[EdgeSettings], bus: Bus) -> None:
            await edge.serve_over(process, bus, server.serve)

        service = self._service("edge", EdgeSettings, serve)
        self._servers[service.id] = server
        self.edges.append(service)
        return service

    def _service(self, name: str, settings: type[S], serve: Serve[S], user: str = "") -> LocalService[S]:
        """Start a service, as the NATS user of its own name or another."""
        service = self._environment.service(name, settings, serve, user=user or name)
        self._services.append(service)
        self._tasks.start_soon(service.run)
        return service

    # -- what a test does with it -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def client(self, edge: int = 0, *, path: str = "/mcp", **options: Any) -> AsyncIterator[Client]:
        """The official client, connected to an edge for the length of a block.

        Args:
            edge: which of the edges.
            path: the endpoint's.
            options: of `mcp.Client`.
        """
        async with self.http(edge) as http:
            transport = streamable_http_client(HOST + path, http_client=http)
            async with Client(transport, **options) as client:
                yield client

    def http(self, edge: int = 0) -> httpx2.AsyncClient:
        """An HTTP client whose requests reach an edge, under `http://localhost`."""
        server = self._servers[self.edges[edge].id]
        return httpx2.AsyncClient(transport=LocalTransport(server), base_url=HOST)

    def logs(self) -> str:
        """What the services have logged."""
        return self._environment.lines.text()

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The log lines of one event, with all that they say of it."""
        return self._environment.lines.of(event)


async def _ready(*services: AnyService) -> None:
    """Wait until services are ready, and raise what one of them failed of."""
    with anyio.move_on_after(_STARTS_WITHIN) as scope:
        for service in services:
            await service.wait_ready()
            if service.error is not None:
                raise service.error
    if scope.cancelled_caught:
        raise TimeoutError("not ready: " + ", ".join(service.why_not_ready() for service in services))
