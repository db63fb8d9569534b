"""The messages of the catalog: workers announce manifests, edges fetch numbered snapshots, operators withdraw."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.rpc import Rpc, ask
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.manifest import POOL_PATTERN, Definition, Languages


class Announce(Message):
    """A worker is alive and serves this manifest; sent at the start, on change and every few seconds."""

    process: str
    """The worker's process id: an announcement replaces the former one of the same process."""
    digest: str
    manifest: str | None = None
    """The exact JSON text of the manifest, once the catalog has asked for it."""
    leaving: bool = False
    """The worker drains, and counts no longer."""


class Announced(Message):
    """The catalog has counted the worker in."""

    wanted: bool = False
    """The digest is unknown: announce again, with the manifest."""
    files: tuple[str, ...] = ()
    """Digests of files that the manifest names and the catalog lacks: it does not count until they are brought."""
    endpoints: tuple[str, ...] = ()
    """The endpoints that the pool may serve, which hear its workers' hints of resources."""


class SnapshotWanted(Message):
    """An edge asks for an endpoint's merged catalog."""

    endpoint: str = Field(pattern=POOL_PATTERN)
    known: int | None = None
    """The edge's number: no body comes back while it is the newest."""


class Listed(Message):
    """A definition in a snapshot, with the pool that serves it."""

    pool: str = Field(pattern=POOL_PATTERN)
    digest: str
    """Names the text that the worker announced; the definition is the catalog's reading of it."""
    definition: Definition


class Snapshot(Message):
    """An endpoint's merged catalog, numbered by the database."""

    endpoint: str
    number: int
    name: str
    """`serverInfo.name`: the application's name, or the endpoint's if several pools serve it."""
    version: str
    title: str | None = None
    description: str | None = None
    icons: tuple[dict[str, Any], ...] = ()
    website_url: str | None = None
    instructions: str | None = None
    logs: bool = True
    """A pool's handlers may log to their clients (X66)."""
    ttl: dict[str, float] = Field(default={})
    """By `CACHED`: the endpoint's own seconds, else the least that its pools state (X74)."""
    partly: tuple[str, ...] = ()
    """Those of them that some pool leaves to the edge's settings, which then count too."""
    languages: dict[str, Languages] = Field(default={})
    """The languages of pools that have several, by the pools' names."""
    listed: tuple[Listed, ...] = Field(default=(), fail_fast=True)
    """By name, then by kind: the same order on every edge (M34)."""
    extensions: tuple[Listed, ...] = Field(default=(), fail_fast=True)
    """The definitions of own extensions, in the same order; edges of former releases ignore them."""

    @property
    def every(self) -> tuple[Listed, ...]:
        """All definitions, with those of own extensions."""
        return (*self.listed, *self.extensions)


class SnapshotAnswer(Message):
    """The newest number, and the snapshot if the edge does not have it yet."""

    number: int
    snapshot: Snapshot | None = None


class Withdraw(Message):
    """An operator ends a pool that lingers without workers."""

    pool: str = Field(pattern=POOL_PATTERN)


class Withdrawn(Message):
    """The effect of the withdrawal."""

    definitions: int
    """Number of listed definitions that went; 0 if the pool was unknown or still has workers."""
    workers: int
    """Live workers that keep the pool listed: it is not withdrawn while there are any."""


ANNOUNCE = Rpc("catalog.announce.{pool}", Announce, Announced, asked_by="pool-{pool}", repeat=True)
SNAPSHOT = Rpc("catalog.snapshot", SnapshotWanted, SnapshotAnswer, asked_by="edge", repeat=True)
WITHDRAW = Rpc("catalog.withdraw", Withdraw, Withdrawn, asked_by="operator", repeat=True)


def hint_subject(endpoint: str) -> str:
    """The subject of the hint that an endpoint's number may have grown; the body is the number in decimal."""
    return f"hint.catalog.{endpoint}"


class CatalogClient:
    """Asks the catalog for other processes.

    Every method raises `BusError`: `NotRun` if the catalog did nothing, `Unanswered` if it may have done it.
    """

    def __init__(self, bus: Bus, *, timeout: float = 2.0) -> None:
        self._bus = bus
        self._timeout = timeout

    async def announce(self, pool: str, message: Announce) -> Announced:
        """Announce that a worker of the pool is alive, with its manifest."""
        return await ask(self._bus, ANNOUNCE, message, timeout=self._timeout, pool=pool)

    async def snapshot(self, endpoint: str, known: int | None) -> SnapshotAnswer:
        """Fetch the endpoint's snapshot if it is newer than the known number."""
        return await ask(self._bus, SNAPSHOT, SnapshotWanted(endpoint=endpoint, known=known), timeout=self._timeout)

    async def withdraw(self, pool: str) -> Withdrawn:
        """End a pool that lingers without workers."""
        return await ask(self._bus, WITHDRAW, Withdraw(pool=pool), timeout=self._timeout)
