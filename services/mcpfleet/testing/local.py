"""A fleet inside of a test: the real services, as tasks of the test's own event loop, on a switch without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

import anyio
import httpx2
from anyio.abc import TaskGroup
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mcpfleet.app import App
from mcpfleet.authorization import __main__ as authorization
from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.bus.memory import Switch
from mcpfleet.catalog import __main__ as catalog
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.cli.known import SETTINGS
from mcpfleet.contracts.permissions import pool_user
from mcpfleet.edge import __main__ as edge
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.process.service import Process
from mcpfleet.testing.ground import POOL, Ground, laid
from mcpfleet.testing.lines import Lines
from mcpfleet.testing.part import AnyPart, Part
from mcpfleet.testing.reading import check_names, durations
from mcpfleet.testing.server import LocalServer, LocalTransport
from mcpfleet.worker import __main__ as worker
from mcpfleet.worker.settings import WorkerSettings

HOST: Final = "http://localhost"
_STARTS_WITHIN: Final = 30.0
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class LocalFleet:
    """Runs a fleet inside of `async with`, which begins when every part is ready and ends when all have drained.

    The block may be left in another task than the one that entered it, so that a fixture can hold a fleet. A part that
    fails ends alone; its error is raised at the end of the block.

    Attributes:
        edges: the edges in the order of their start, with those that ended.
        workers: the same of the workers.
        authorization: the one process of its service.
        catalog: the one process of its service.
    """

    authorization: Part[AuthorizationSettings]
    catalog: Part[CatalogSettings]

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
            environment: settings of every part; what is in this process's own environment does not count.
            nats: connect the parts by an embedded NATS server, instead of the switch.
            seed: decides on the switch which member of a group hears a message, and which messages meet faults.

        Raises:
            ConfigurationError: a name in the environment is no setting.
        """
        check_names(environment, SETTINGS.values())
        variables = {"MCPFLEET_LAME": "0", **durations(SETTINGS.values(), factor), **environment}
        self.edges: list[Part[EdgeSettings]] = []
        self.workers: list[Part[WorkerSettings]] = []
        self._app = app
        self._numbers = edges, workers
        self._laid = laid(variables, nats=nats, seed=seed)
        self._lines = Lines()
        self._parts: list[AnyPart] = []
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
        async with self._laid as self._ground, anyio.create_task_group() as self._tasks:
            try:
                await self._start()
                self._up.set()
                await self._over.wait()
            except Exception as error:  # raised below, outside of the group, which would wrap it
                failure = error
            await self._end(drain=failure is None and not self._is_in_vain)
        failure = failure or next((part.error for part in self._parts if part.error is not None), None)
        if failure is not None:
            failure.add_note(self.logs())
            raise failure

    async def _start(self) -> None:
        """Start everything; the services first, since what asks in vain asks again only after half a second."""
        ground = self._ground

        async def authorize(process: Process[AuthorizationSettings]) -> None:
            await authorization.serve_over(process, ground.bus(process, process.name))

        async def list_all(process: Process[CatalogSettings]) -> None:
            await catalog.serve_over(process, ground.bus(process, process.name))

        self.authorization = self._part("authorization", AuthorizationSettings, "authorization", authorize)
        self.catalog = self._part("catalog", CatalogSettings, "catalog", list_all)
        await self._ready(self.authorization, self.catalog)
        edges, workers = self._numbers
        await self._ready(
            *[self._worker(self._app) for _ in range(workers)],
            *[self._edge() for _ in range(edges)],
        )
