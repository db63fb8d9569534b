"""An edge without a link to NATS, whose authorization and catalog the test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from structlog.testing import LogCapture

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.nats import NatsConnector
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.authorization import ADMIT, LIMITS_ALL, Admit, Admitted, TakeTokens, TokensGranted, TokensTaken
from mcpfleet.contracts.catalog import SNAPSHOT, Listed, Snapshot, SnapshotAnswer, SnapshotWanted
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.server.wiring import wire
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.process.service import Process
from mcpfleet.telemetry.instruments import BusInstruments
from mcpfleet.telemetry.metrics import Family
from tests.kit.logs import captured
from tests.unit.edge.asgi import Exchange, Post

SETTINGS = EdgeSettings(queue_wait=0.1, max_request=100_000)
BASE_URL = "http://127.0.0.1:8000"


class Authorization:
    """The answers of authorization."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.principal: Principal | None = Principal()
        self.granted = TokensGranted(granted=1_000_000, rest=60, window=1, left=1_000_000)
        self.admits: list[Admit] = []

    def admit(self, request: Admit) -> Admitted:
        """Admit the principal, unless there is none, or an error."""
        self.admits.append(request)
        if self.error is not None:
            raise self.error
        return Admitted(principal=self.principal, lasts=0)


class Catalog:
    """The answers of the catalog."""

    def __init__(self, *definitions: Definition, **about: Any) -> None:
        self._about = {"name": "library", "version": "1"} | about
        self._listed = tuple(Listed(pool="library", digest=each.digest, definition=each) for each in definitions)

    def snapshot(self, wanted: SnapshotWanted) -> SnapshotAnswer:
        """Answer with all definitions, whatever is known."""
        known: dict[str, Any] = {"endpoint": wanted.endpoint, "number": 1, "listed": self._listed}
        snapshot = Snapshot.model_validate(known | self._about)
        return SnapshotAnswer(number=1, snapshot=snapshot)


class Played(Bus):
    """Answers where the bus begins what goes to authorization and to the catalog; its link is never made."""

    def __init__(self, process: Process[EdgeSettings], authorization: Authorization, catalog: Catalog) -> None:
        settings, log = process.settings, process.log
        connector = NatsConnector(settings, user="edge", name="edge", log=log)
        instruments = BusInstruments(process.telemetry.metrics)
        super().__init__(connector, settings, user="edge", process=process.id, instruments=instruments, log=log)
        self._authorization = authorization
        self._catalog = catalog

    async def request(self, subject: str, body: bytes, *, timeout: float, repeat: bool = False) -> Incoming:
        """Have the played parts answer; what others are asked finds no link."""
        answer: Admitted | TokensTaken | SnapshotAnswer
        if subject == ADMIT.subject:
            answer = self._authorization.admit(Admit.model_validate_json(body))
        elif subject == LIMITS_ALL.subject:
            wanted = TakeTokens.model_validate_json(body).limits
            answer = TokensTaken(limits=tuple(self._authorization.granted for _ in wanted))
        elif subject == SNAPSHOT.subject:
            answer = self._catalog.snapshot(SnapshotWanted.model_validate_json(body))
        else:
            return await super().request(subject, body, timeout=timeout, repeat=repeat)
        return Incoming(subject, reply="", body=answer.model_dump_json(exclude_none=True).encode())


def tool(name: str = "search", asks: tuple[str, ...] = (), **properties: Any) -> Definition:
    wire = {"name": name, "inputSchema": {"type": "object", "properties": properties}}
    return Definition(kind="tool", name=name, wire=wire, asks=asks)


class Edge:
    """An edge as a process wires it, over a bus that is played."""

    def __init__(
        self, catalog: Catalog, settings: EdgeSettings = SETTINGS, process: Process[EdgeSettings] | None = None
    ) -> None:
        self.log = LogCapture()
        self.authorization = Authorization()
        if settings.authorization != "none":
            self.authorization.principal = Principal(subject="ann")
        process = process or Process("edge", settings)
        process.log = captured(self.log)
        self._metrics = process.telemetry.metrics
        self.wired = wired = wire(process, Played(process, self.authorization, catalog), BASE_URL)
        self.application, self.calls, self.hub, self.snapshots = (
            wired.application, wired.calls, wired.hub, wired.snapshots,
        )  # fmt: skip

    def figures(self) -> dict[str, Family]:
        """The measurements, by the instruments' names."""
        return {family.name: family for family in self._metrics.read()}

    async def answer(self, post: Post) -> Exchange:
        """Serve one request to its end."""
        exchange = Exchange(post)
        with anyio.fail_after(5):
            await self.application(exchange.scope, exchange.receive, exchange.send)
        return exchange


@asynccontextmanager
async def edge(*definitions: Definition, settings: EdgeSettings = SETTINGS, **about: Any) -> AsyncIterator[Edge]:
    """An edge that knows its catalog, whose snapshot has these further members."""
    made = Edge(Catalog(*definitions, **about), settings)
    async with anyio.create_task_group() as tasks:
        await tasks.start(made.hub.run)
        await tasks.start(made.snapshots.run)
        await tasks.start(made.wired.identity.limits.run)
        made.snapshots._refresh("mcp")  # as a hint would have it, which nobody sends here
        with anyio.fail_after(5):
            await made.snapshots.wait_known()
        yield made
        tasks.cancel_scope.cancel()
