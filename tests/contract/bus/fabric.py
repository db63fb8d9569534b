"""The link between the buses of a test, and the ways in which a test hurts it.

Every test of the bus is written against `Fabric`, so that each implementation of the port passes the same ones.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from pydantic import SecretStr
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.memory.switch import Switch
from mcpfleet.bus.nats import NatsConnector
from mcpfleet.bus.port import Connector
from mcpfleet.cli.child import Child
from mcpfleet.cli.embedded_nats import EmbeddedNats, find_server
from mcpfleet.contracts.permissions import permissions, users
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.telemetry.instruments import BusInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.testing.fleet import pause
from tests.kit.logs import captured
from tests.kit.waiting import until

POOLS: Final = ("library", "other")
UP_WITHIN: Final = 5.0


class Fabric(ABC):
    """Makes buses, each the process of one user, that reach each other."""

    def __init__(self, settings: ProcessSettings) -> None:
        self.settings = settings
        self.log = LogCapture()
        """The log of all buses."""
        self.instruments = BusInstruments(Metrics())
        """The counters of all buses."""
        self._ids = itertools.count(1)

    @abstractmethod
    def connector(self, user: str, settings: ProcessSettings, process: str) -> Connector:
        """Make the links of a process, as one user."""

    @property
    @abstractmethod
    def where(self) -> str:
        """The links' address as an operator reads it."""

    @abstractmethod
    async def start(self) -> None:
        """Let links be made; again after `lose`, at the same place."""

    @abstractmethod
    async def lose(self) -> None:
        """End all links at once, and let none be made."""

    @abstractmethod
    def freeze(self) -> None:
        """Let nothing through, without ending a link."""

    @abstractmethod
    def thaw(self) -> None:
        """Undo `freeze`."""

    @property
    def logger(self) -> FilteringBoundLogger:
        """A logger whose lines `log` has."""
        return captured(self.log)

    def lines(self, event: str) -> list[Any]:
        """The lines that were logged of one event."""
        return [line for line in self.log.entries if line["event"] == event]

    def bus(self, user: str, **settings: Any) -> Bus:
        """A bus that has yet to run."""
        chosen = self.settings.model_copy(update=settings)
        process = self.new_process()
        return self.bus_over(self.connector(user, chosen, process), chosen, user, process)

    def new_process(self) -> str:
        """The id of a process that is new here."""
        return f"{next(self._ids):016x}"

    def bus_over(self, connector: Connector, settings: ProcessSettings, user: str, process: str) -> Bus:
        """A bus over links of the test's own."""
        return Bus(connector, settings, user=user, process=process, instruments=self.instruments, log=self.logger)

    @asynccontextmanager
    async def buses(self, *users: str, **settings: Any) -> AsyncIterator[tuple[Bus, ...]]:
        """Buses that are up, for the length of a block."""
        buses = tuple(self.bus(user, **settings) for user in users)
        async with running(*buses):
            with anyio.fail_after(UP_WITHIN):
                for bus in buses:
                    await bus.wait_up()
            yield buses


@asynccontextmanager
async def running(*buses: Bus) -> AsyncIterator[None]:
    """Run buses for the length of a block, whether or not they come up."""
    async with anyio.create_task_group() as tasks:
        for bus in buses:
            await tasks.start(bus.run)
        yield
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def living(fabric: Fabric) -> AsyncIterator[Fabric]:
    """A fabric for the length of a block; afterwards nothing of its buses is left."""
    await fabric.start()
    before = asyncio.all_tasks()
    try:
        yield fabric
        left = asyncio.all_tasks() - before - {asyncio.current_task()}
        assert left == set(), "a task outlives the bus that made it"
    finally:
        fabric.thaw()
        await fabric.lose()


async def heard(*buses: Bus) -> None:
    """Wait until what these buses subscribed to is known: subscribing does not wait for the server.

    A bus's own question follows its subscriptions on the same link, and comes back after them.
    """
    for bus in buses:
        await _hear_self(bus)


def by_edges(_subject: str) -> str:
    """The inboxes that are answered: those of edges."""
    return "inbox.edge."


async def _hear_self(bus: Bus) -> None:
    came = anyio.Event()
    myself = f"inbox.{bus.user}.{bus.process}.self"
    await bus.subscribe(myself, lambda _: came.set())  # it stays, since leaving takes its time
    bus.publish(myself, b"")
    with anyio.fail_after(UP_WITHIN):
        await came.wait()


class MemoryFabric(Fabric):
    """The in-memory switch, with our users and permissions."""

    def __init__(self, _directory: Path, settings: ProcessSettings) -> None:
        super().__init__(settings)
        prefix = settings.subject_prefix
        self.switch = Switch({user: permissions(user, pool, prefix) for user, pool in users(POOLS).items()}, seed=1)

    def connector(self, user: str, settings: ProcessSettings, process: str) -> Connector:
        return self.switch.connector(user, settings, process=process)

    @property
    def where(self) -> str:
        return "memory"

    async def start(self) -> None:
        self.switch.start()

    async def lose(self) -> None:
        self.switch.stop()

    def freeze(self) -> None:
        self.switch.freeze()

    def thaw(self) -> None:
        self.switch.thaw()


class NatsFabric(Fabric):
    """A NATS server of the test's own, with our users and permissions."""

    def __init__(self, directory: Path, settings: ProcessSettings) -> None:
        super().__init__(settings)
        self._directory = directory
        self._server = EmbeddedNats(directory, POOLS, settings, lambda user: f"password of {user}")

    def connector(self, user: str, settings: ProcessSettings, process: str) -> Connector:
        password = SecretStr(f"password of {user}")
        chosen = settings.model_copy(update={"nats_url": self._server.url, "nats_password": password})
        return NatsConnector(chosen, user=user, name=f"test {user} {process}", log=self.logger)

    def stranger(self, user: str, **settings: Any) -> Bus:
        """A bus that goes by settings of its own: another address or password."""
        chosen = self.settings.model_copy(update={"nats_url": self._server.url, **settings})
        connector = NatsConnector(chosen, user=user, name=f"test {user}", log=self.logger)
        return self.bus_over(connector, chosen, user, self.new_process())

    @asynccontextmanager
    async def open_server(self) -> AsyncIterator[str]:
        """A second server, which asks nobody who they are; its address is not one of loopback's."""
        directory = self._directory / "open"
        directory.mkdir()
        server = Child("nats", [find_server(), "--port", "-1", "--ports_file_dir", str(directory)])
        await server.start()
        note = directory / f"nats-server_{server.pid}.ports"
        try:
            await until(lambda: note.exists() and note.read_text().endswith("}"))
            port = urlsplit(json.loads(note.read_text())["nats"][0]).port
            yield f"nats://0.0.0.0:{port}"
        finally:
            await server.kill()

    @property
    def where(self) -> str:
        return self._server.url

    async def start(self) -> None:
        await self._server.start()

    async def lose(self) -> None:
        await self._server.child.kill()

    def freeze(self) -> None:
        pause(self._server.child.pid)

    def thaw(self) -> None:
        self._server.child.signal(signal.SIGCONT)
