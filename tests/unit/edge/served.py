"""An edge without a bus, whose authorization and catalog the test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from structlog.testing import LogCapture

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.nats import NatsConnector
from mcpfleet.contracts.authorization import Admit, Admitted, AuthorizationClient, TakeFromLimit, Taken
from mcpfleet.contracts.catalog import CatalogClient, Listed, Snapshot, SnapshotAnswer
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.tasks import TasksClient
from mcpfleet.edge.access.admission import Admission
from mcpfleet.edge.access.audit import Audit
from mcpfleet.edge.access.limits import Limits
from mcpfleet.edge.access.metadata import Access, Metadata
from mcpfleet.edge.calls.answering import Answering
from mcpfleet.edge.calls.bodies import Bodies
from mcpfleet.edge.calls.ends import Ends
from mcpfleet.edge.calls.pending import Calls
from mcpfleet.edge.calls.uses import Uses
from mcpfleet.edge.calls.waiting import Dispatch
from mcpfleet.edge.http.app import Application
from mcpfleet.edge.http.cors import Cors
from mcpfleet.edge.http.doors import Doors
from mcpfleet.edge.http.room import Room
from mcpfleet.edge.protocol.lists import Lists
from mcpfleet.edge.protocol.methods import Methods
from mcpfleet.edge.protocol.protector import Protector
from mcpfleet.edge.protocol.rounds import Rounds
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.snapshots import Snapshots
from mcpfleet.edge.streams.hub import Hub
from mcpfleet.edge.streams.listens import Listens
from mcpfleet.edge.streams.permission import Permits
from mcpfleet.edge.streams.task_news import TaskNews
from mcpfleet.edge.tasks.creation import Creation
from mcpfleet.edge.tasks.methods import TaskMethods
from mcpfleet.edge.tasks.once import OnceCalls
from mcpfleet.edge.tasks.showing import Showing
from mcpfleet.telemetry.instruments import BusInstruments, EdgeInstruments, StreamInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.telemetry.spans import Tracer
from tests.kit.logs import captured
from tests.unit.edge.asgi import Exchange, Post

SETTINGS = EdgeSettings(queue_wait=0.1, max_request=100_000)


class Authorization(AuthorizationClient):
    """Stands where the bus begins."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.principal: Principal | None = Principal()
        self.taken = Taken(granted=1_000_000, rest=60)
        self.admits: list[Admit] = []

    async def take(self, request: TakeFromLimit) -> Taken:
        return self.taken

    async def admit(self, request: Admit) -> Admitted:
        self.admits.append(request)
        if self.error is not None:
            raise self.error
        return Admitted(principal=self.principal, lasts=0)


class Catalog(CatalogClient):
    """Stands where the bus begins."""

    def __init__(self, *definitions: Definition) -> None:
        self._listed = tuple(Listed(pool="library", digest=each.digest, definition=each) for each in definitions)

    async def snapshot(self, endpoint: str, known: int | None) -> SnapshotAnswer:
        snapshot = Snapshot(endpoint=endpoint, number=1, name="library", version="1", listed=self._listed)
        return SnapshotAnswer(number=1, snapshot=snapshot)


def tool(name: str = "search", asks: tuple[str, ...] = (), **properties: Any) -> Definition:
    wire = {"name": name, "inputSchema": {"type": "object", "properties": properties}}
    return Definition(kind="tool", name=name, wire=wire, asks=asks)


class Edge:
    """An edge without a bus: its link to NATS is never made."""

    def __init__(self, catalog: Catalog, settings: EdgeSettings = SETTINGS) -> None:
        self.log = LogCapture()
        self.authorization = Authorization()
        if settings.authorization != "none":
            self.authorization.principal = Principal(subject="ann")
        self.instruments = EdgeInstruments(Metrics())
        log = captured(self.log)
        bus = Bus(
            NatsConnector(settings, user="edge", name="edge", log=log),
            settings,
            user="edge",
            process="e1",
            instruments=BusInstruments(Metrics()),
            log=log,
        )
        access = Access(settings, "http://127.0.0.1:8000", lambda _endpoint: ("read",))
        access_or_none = access if settings.authorization != "none" else None
        admission = Admission(self.authorization, entries=10, access=access_or_none)
        limits = Limits(self.authorization, settings, edge="e" * 16, log=log)
        self.calls = calls = Calls(bus, settings, log)
        rooms = {name: Room(64 * 1024 * 1024, name) for name in ("MCPFLEET_REQUEST_ROOM", "MCPFLEET_RESULT_ROOM")}
        self.snapshots = Snapshots(bus, catalog, settings.endpoints, settings=settings, tracer=Tracer(), log=log)
        protector = Protector("", adopted_after=0, log=log)
        rounds = Rounds(protector, settings)
        answering = Answering(
            calls,
            Dispatch(calls, settings, self.instruments),
            Bodies(bus, rooms["MCPFLEET_RESULT_ROOM"], settings),
            Ends(rounds, log),
            settings=settings,
            log=log,
        )
        tasks = TasksClient(bus)
        creation = Creation(tasks, settings.endpoints, log=log)
        once = OnceCalls(bus, tasks, log, settings.repeats_waiting)
        uses = Uses(
            answering, rounds, self.snapshots, settings,
            admission=admission, limits=limits, creation=creation, once=once,
        )  # fmt: skip
        streams = StreamInstruments(Metrics())
        showing = Showing(calls, answering.dispatch, answering.bodies, self.snapshots, settings=settings, log=log)
        news = TaskNews(bus, tasks, showing, settings, tracer=Tracer(), log=log)
        self.hub = Hub(bus, self.snapshots, settings, tasks=news, tracer=Tracer(), instruments=streams, log=log)
        admission.on_ended(self.hub.revoke)
        self.admission = admission
        listens = Listens(
            bus,
            self.hub,
            Permits(admission, longest=settings.permission_lasts),
            limits,
            settings=settings,
            instruments=streams,
        )
        cors = Cors(settings.cors_origins)
        doors = Doors(settings.bind, settings.public_hosts, cors.origins)
        self.application = Application(
            endpoints=settings.endpoints,
            doors=doors,
            cors=cors,
            admission=admission,
            limits=limits,
            metadata=Metadata(access, settings.endpoints, doors) if access_or_none is not None else None,
            methods=Methods(
                endpoints=SETTINGS.endpoints,
                admission=admission,
                limits=limits,
                snapshots=self.snapshots,
                lists=Lists(protector, uses, settings),
                uses=uses,
                listens=listens,
                tasks=TaskMethods(tasks, limits, showing, log=log),
                audit=Audit("edge", "e1", is_on=False, lost=self.instruments.audit_lost),
            ),
            room=rooms["MCPFLEET_REQUEST_ROOM"],
            snapshots=self.snapshots,
            settings=settings,
            tracer=Tracer(),
            is_traced=False,
            instruments=self.instruments,
            log=log,
        )

    async def answer(self, post: Post) -> Exchange:
        """Serve one request to its end."""
        exchange = Exchange(post)
        with anyio.fail_after(5):
            await self.application(exchange.scope, exchange.receive, exchange.send)
        return exchange


@asynccontextmanager
async def edge(*definitions: Definition, settings: EdgeSettings = SETTINGS) -> AsyncIterator[Edge]:
    """An edge that knows its catalog."""
    made = Edge(Catalog(*definitions), settings)
    async with anyio.create_task_group() as tasks:
        await tasks.start(made.hub.run)
        await tasks.start(made.snapshots.run)
        made.snapshots._refresh("mcp")  # as a hint would have it, which nobody sends here
        with anyio.fail_after(5):
            await made.snapshots.wait_known()
        yield made
        tasks.cancel_scope.cancel()
