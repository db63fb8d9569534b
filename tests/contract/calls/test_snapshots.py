"""An edge's snapshots of the catalog: fetched at a hint, confirmed by a timer and in use, never older than before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.catalog import (
    SNAPSHOT,
    CatalogClient,
    Listed,
    Snapshot,
    SnapshotAnswer,
    SnapshotWanted,
    hint_subject,
)
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.telemetry.spans import Tracer
from tests.contract.bus.fabric import Fabric, heard
from tests.kit.waiting import until

ANYBODY = Principal()


def as_listed(name: str) -> Listed:
    definition = Definition(kind="tool", name=name, wire={"name": name, "inputSchema": {}})
    return Listed(pool="library", digest=definition.digest, definition=definition)


class Catalog:
    """Answers for one endpoint, with the snapshot that the test gives it."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.number = 1
        self.tools = ["search"]
        self.asked: list[int | None] = []
        """The numbers that edges said they know."""

    async def listen(self) -> None:
        """Answer from now on."""
        self._hearing = await self._bus.subscribe(SNAPSHOT.subject, self._answer, "catalog", asked_by=SNAPSHOT.replies)
        await heard(self._bus)

    async def go(self) -> None:
        """Answer nobody any more."""
        await self._bus.leave(self._hearing)

    def hint(self, body: bytes) -> None:
        """Say that there may be a newer number."""
        self._bus.publish(hint_subject("mcp"), body)

    def _answer(self, question: Incoming) -> None:
        known = SnapshotWanted.model_validate_json(question.body).known
        self.asked.append(known)
        snapshot = None if known == self.number else self._snapshot()
        answer = SnapshotAnswer(number=self.number, snapshot=snapshot)
        self._bus.respond(question, answer.model_dump_json(exclude_none=True).encode())

    def _snapshot(self) -> Snapshot:
        definitions = [
            Definition(kind="tool", name=name, wire={"name": name, "inputSchema": {}}) for name in self.tools
        ]
        listed = tuple(Listed(pool="library", digest=each.digest, definition=each) for each in definitions)
        return Snapshot(endpoint="mcp", number=self.number, name="library", version="1", listed=listed)

    def change(self, number: int, *tools: str, hint: bool = True) -> None:
        """Have another snapshot from now on."""
        self.number, self.tools = number, list(tools)
        if hint:
            self.hint(b"%d" % number)


@asynccontextmanager
async def known(
    fabric: Fabric, *, heal: float = 60.0, lasts: float = 60.0, late: bool = False
) -> AsyncIterator[tuple[Snapshots, Catalog]]:
    """An edge's snapshots, and the catalog that they are of; by default neither timer nor use ask by themselves."""
    settings = EdgeSettings(heal_interval=heal, snapshot_lasts=lasts)
    async with fabric.buses("edge", "catalog") as (edge, bus), anyio.create_task_group() as tasks:
        catalog = Catalog(bus)
        client = CatalogClient(edge, timeout=0.6)
        snapshots = Snapshots(edge, client, ["mcp"], settings=settings, tracer=Tracer(), log=fabric.logger)
        if not late:
            await catalog.listen()
        await tasks.start(snapshots.run)
        await heard(edge)
        if not late:
            with anyio.fail_after(5):
                await snapshots.wait_known()
        yield snapshots, catalog
        tasks.cancel_scope.cancel()


def tools(snapshots: Snapshots) -> list[str]:
    view = snapshots.view("mcp", ANYBODY)
    return [] if view is None else list(view.targets["tool"])


async def test_an_edge_fetches_what_there_is_when_it_starts(fabric: Fabric) -> None:
    async with known(fabric) as (snapshots, catalog):
        assert tools(snapshots) == ["search"]
        assert snapshots.has_tool("mcp", "search")
        assert not snapshots.has_tool("mcp", "find")
        assert catalog.asked == [None]


async def test_a_hint_of_a_newer_number_is_followed(fabric: Fabric) -> None:
    async with known(fabric) as (snapshots, catalog):
        catalog.change(2, "find")
        await until(lambda: tools(snapshots) == ["find"], within=5)
        assert catalog.asked == [None, 1], "the edge says what it knows, so that no body comes twice"


async def test_a_hint_that_is_late_or_doubled_takes_nobody_back(fabric: Fabric) -> None:
    """Invariant 5: an edge never goes to a lower number."""
    async with known(fabric) as (snapshots, catalog):
        catalog.change(5, "find")
        await until(lambda: tools(snapshots) == ["find"], within=5)
        catalog.change(3, "search")
        await until(lambda: len(catalog.asked) >= 3, within=5)
        catalog.change(5, "find")
        await until(lambda: len(catalog.asked) >= 4, within=5)
        assert tools(snapshots) == ["find"]


async def test_a_hint_that_overtakes_its_snapshot_is_followed_up(fabric: Fabric) -> None:
    """A replica of the catalog may answer that has not seen the change yet."""
    async with known(fabric) as (snapshots, catalog):
        catalog.change(1, "search", hint=False)
        catalog.hint(b"2")
        await until(lambda: len(catalog.asked) >= 2, within=5)
        catalog.change(2, "find", hint=False)
        catalog.hint(b"2")
        await until(lambda: tools(snapshots) == ["find"], within=5)


async def test_many_hints_at_once_ask_a_few_times(fabric: Fabric) -> None:
    async with known(fabric) as (snapshots, catalog):
        for number in range(2, 52):
            catalog.change(number, "find")
        await until(lambda: tools(snapshots) == ["find"], within=5)
        await heard(catalog._bus)
        assert len(catalog.asked) < 15


@pytest.mark.rule("invariant 5")
async def test_a_hint_that_was_lost_is_made_good_by_the_timer(fabric: Fabric) -> None:
    async with known(fabric, heal=0.2) as (snapshots, catalog):
        catalog.change(2, "find", hint=False)
        await until(lambda: tools(snapshots) == ["find"], within=5)


async def test_a_snapshot_that_is_used_is_confirmed_in_the_background(fabric: Fabric) -> None:
    """A call never waits for the catalog."""
    async with known(fabric, lasts=0.1) as (snapshots, catalog):
        catalog.change(2, "find", hint=False)
        await anyio.sleep(0.15)
        assert tools(snapshots) == ["search"]
        await until(lambda: tools(snapshots) == ["find"], within=5)


async def test_after_a_gap_numbers_are_compared(fabric: Fabric) -> None:
    async with known(fabric) as (snapshots, catalog):
        await fabric.lose()
        await until(lambda: fabric.lines("link lost"), within=5)
        catalog.change(2, "find", hint=False)
        await fabric.start()
        await until(lambda: tools(snapshots) == ["find"], within=8)


async def test_what_is_known_is_served_while_the_catalog_is_away(fabric: Fabric) -> None:
    async with known(fabric, heal=0.1) as (snapshots, catalog):
        await catalog.go()
        await until(lambda: fabric.lines("snapshot not fetched"), within=5)
        assert tools(snapshots) == ["search"]


async def test_an_edge_that_starts_before_the_catalog_asks_again_when_it_is_used(fabric: Fabric) -> None:
    """No hint tells that the catalog is back where nothing changed, and the timer is far."""
    async with known(fabric, late=True) as (snapshots, catalog):
        await until(lambda: fabric.lines("snapshot not fetched"), within=5)
        await catalog.listen()
        await until(lambda: tools(snapshots) == ["search"], within=5)


async def test_callers_of_equal_rights_share_a_view(fabric: Fabric) -> None:
    """Each distinct view is computed once."""
    async with known(fabric) as (snapshots, _):
        assert snapshots.view("mcp", ANYBODY) is snapshots.view("mcp", Principal())


async def test_a_malformed_hint_is_ignored(fabric: Fabric) -> None:
    async with known(fabric) as (snapshots, catalog):
        for body in (b"", b"-1", b"two", b"9" * 1000):
            catalog.hint(body)
        catalog.change(2, "find")
        await until(lambda: tools(snapshots) == ["find"], within=5)
        assert fabric.lines("message dropped") == []
