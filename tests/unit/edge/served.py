"""An edge without a bus, whose authorization and catalog the test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import structlog
from structlog.testing import LogCapture

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.nats import NatsConnector
from mcpfleet.contracts.authorization import Admit, Admitted, AuthorizationClient
from mcpfleet.contracts.catalog import CatalogClient, Listed, Snapshot, SnapshotAnswer
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.admission import Admission
from mcpfleet.edge.answering import Answering
from mcpfleet.edge.audit import Audit
from mcpfleet.edge.bodies import Bodies
from mcpfleet.edge.calls import Calls
from mcpfleet.edge.cors import Cors
from mcpfleet.edge.doors import Doors
from mcpfleet.edge.ends import Ends
from mcpfleet.edge.http import Application
from mcpfleet.edge.lists import Lists
from mcpfleet.edge.methods import Methods
from mcpfleet.edge.protector import Protector
from mcpfleet.edge.room import Room
from mcpfleet.edge.rounds import Rounds
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.snapshots import Snapshots
from mcpfleet.edge.streams.hub import Hub
from mcpfleet.edge.streams.listens import Listens
from mcpfleet.edge.uses import Uses
from mcpfleet.edge.waiting import Dispatch
from mcpfleet.telemetry.instruments import BusInstruments, EdgeInstruments, StreamInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.telemetry.spans import Tracer
from tests.unit.edge.asgi import Exchange, Post

SETTINGS = EdgeSettings(queue_wait=0.1, max_request=100_000)


class Authorization(AuthorizationClient):
    """Stands where the bus begins."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.principal: Principal | None = Principal()

    async def admit(self, request: Admit) -> Admitted:
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

    def __init__(self, catalog: Catalog) -> None:
        self.log = LogCapture()
        self.authorization = Authorization()
        self.instruments = EdgeInstruments(Metrics())
        log = structlog.wrap_logger(
            None, processors=[self.log], wrapper_class=structlog.make_filtering_bound_logger("debug")
        )
        bus = Bus(
            NatsConnector(SETTINGS, user="edge", name="edge", log=log),
            SETTINGS,
            user="edge",
            process="e1",
            instruments=BusInstruments(Metrics()),
            log=log,
        )
        admission = Admission(self.authorization, entries=10)
        self.calls = calls = Calls(bus, SETTINGS, log)
        rooms = {name: Room(64 * 1024 * 1024, name) for name in ("MCPFLEET_REQUEST_ROOM", "MCPFLEET_RESULT_ROOM")}
        self.snapshots = Snapshots(bus, catalog, SETTINGS.endpoints, settings=SETTINGS, log=log)
        protector = Protector("", adopted_after=0, log=log)
        rounds = Rounds(protector, SETTINGS)
        answering = Answering(
            calls,
            Dispatch(calls, SETTINGS, self.instruments),
            Bodies(bus, rooms["MCPFLEET_RESULT_ROOM"], SETTINGS.result_limit),
            Ends(rounds, log),
            settings=SETTINGS,
            log=log,
        )
        uses = Uses(answering, rounds, self.snapshots, SETTINGS)
        streams = StreamInstruments(Metrics())
        self.hub = Hub(bus, self.snapshots, SETTINGS, instruments=streams, log=log)
        cors = Cors(SETTINGS.cors_origins)
        self.application = Application(
            endpoints=SETTINGS.endpoints,
            doors=Doors(SETTINGS.bind, SETTINGS.public_hosts, cors.origins),
            cors=cors,
            admission=admission,
            methods=Methods(
                admission=admission,
                snapshots=self.snapshots,
                lists=Lists(protector, uses, SETTINGS),
                uses=uses,
                listens=Listens(bus, self.hub, SETTINGS, instruments=streams),
                audit=Audit("edge", "e1", is_on=False),
            ),
            room=rooms["MCPFLEET_REQUEST_ROOM"],
            snapshots=self.snapshots,
            settings=SETTINGS,
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
async def edge(*definitions: Definition) -> AsyncIterator[Edge]:
    """An edge that knows its catalog."""
    made = Edge(Catalog(*definitions))
    async with anyio.create_task_group() as tasks:
        await tasks.start(made.snapshots.run)
        made.snapshots._refresh("mcp")  # as a hint would have it, which nobody sends here
        with anyio.fail_after(5):
            await made.snapshots.wait_known()
        yield made
        tasks.cancel_scope.cancel()
