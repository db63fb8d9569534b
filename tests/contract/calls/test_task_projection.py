"""How an edge reads changed tasks for its streams: in turn within one, beside each other over all (K15, K17, K18)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcpfleet.bus.bus import Bus
from mcpfleet.contracts.catalog import CatalogClient
from mcpfleet.contracts.tasks import Binding, Status, TasksClient, TaskView, task_hint_subject, task_key
from mcpfleet.edge.calls.in_flight import InFlightCalls
from mcpfleet.edge.calls.large_results import LargeResults
from mcpfleet.edge.calls.queue import CallQueue
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.task_updates import KEY, TaskUpdates
from mcpfleet.edge.tasks.sanitize import Sanitizer
from mcpfleet.edge.transport.memory_budget import MemoryBudget
from mcpfleet.telemetry.instruments import EdgeInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.wire.filter import Filter
from tests.contract.bus.fabric import Fabric
from tests.kit.waiting import until
from tests.unit.edge.streams.opened import Open, stream

ACK, TOLD = "notifications/subscriptions/acknowledged", "notifications/tasks"
ONE, TWO, THREE, GONE = ("a" * 32, "b" * 32, "c" * 32, "d" * 32)


class Service(TasksClient):
    """Stands where the bus begins: knows all tasks but one, and answers when it is let."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.versions_of = {ONE: 1, TWO: 1, THREE: 1}
        self.reading: list[str] = []
        self.read: list[str] = []
        self.gate = anyio.Event()
        self.gate.set()

    async def get(self, task: str, binding: Binding) -> TaskView | None:
        self.reading.append(task)
        await self.gate.wait()
        self.reading.remove(task)
        self.read.append(task)
        if task not in self.versions_of:
            return None
        return TaskView(
            id=task, status=Status.WORKING, version=self.versions_of[task], created_at=0.0, updated_at=1.0,
            poll_ms=1000, endpoint=binding.endpoint, pool="library", definition="0" * 32, name="report",
        )  # fmt: skip


class Updating:
    """An edge's side, and the hints that reach it."""

    def __init__(self, edge: Bus, tasks: Bus, fabric: Fabric, **chosen: Any) -> None:
        settings, log = EdgeSettings(**chosen), fabric.logger
        calls = InFlightCalls(edge, settings, log)
        queue = CallQueue(calls, settings, EdgeInstruments(Metrics()))
        large_results = LargeResults(edge, MemoryBudget(1000, "MCPFLEET_RESULT_ROOM"), settings)
        snapshots = Snapshots(
            edge, CatalogClient(edge), settings.endpoints, settings=settings, tracer=Tracer(), log=log
        )
        sanitizer = Sanitizer(queue, large_results, snapshots, settings=settings, log=log)
        self.service = Service(edge)
        self.updates = TaskUpdates(edge, self.service, sanitizer, settings, tracer=Tracer(), log=log)
        self._edge, self._tasks = edge, tasks

    async def watching(self, *ids: str, **settings: Any) -> Open:
        """A stream that watches, and is not accepted yet."""
        opened = stream(Filter(task_ids=ids), **settings)
        assert self.updates.join(opened.stream)
        await self.updates.watch(opened.stream, {})
        await self._edge.flush(timeout=2)
        return opened

    async def hint(self, *ids: str) -> None:
        """Tasks have changed."""
        for task in ids:
            self.service.versions_of[task] = self.service.versions_of.get(task, 0) + 1
            body = str(self.service.versions_of[task]).encode()
            self._tasks.hint(task_hint_subject(task_key(task)), body, None)
        await self._tasks.flush(timeout=2)
        await self._edge.flush(timeout=2)


@asynccontextmanager
async def updating(fabric: Fabric, **chosen: Any) -> AsyncIterator[Updating]:
    async with fabric.buses("edge", "tasks") as (edge, tasks), anyio.create_task_group() as group:
        made = Updating(edge, tasks, fabric, **chosen)
        await group.start(made.updates.run)
        yield made
        group.cancel_scope.cancel()


def waits(opened: Open) -> list[str]:
    """The tasks that a stream, which does not run, has yet to be told of."""
    return [key.removeprefix(KEY) for key in opened.stream._pending]


@pytest.mark.rule("K17")
async def test_a_stream_reads_one_task_at_a_time_by_first_hint_and_others_beside_it(
    fabric: Fabric,
) -> None:
    async with updating(fabric) as made:
        first, second = await made.watching(ONE, TWO), await made.watching(THREE)
        for opened in (first, second):
            await made.updates.accept(opened.stream)
        made.service.read.clear()
        made.service.gate = anyio.Event()
        await made.hint(ONE, THREE)
        await until(lambda: sorted(made.service.reading) == [ONE, THREE])
        await made.hint(TWO, ONE, ONE, TWO, ONE)
        assert sorted(made.service.reading) == [ONE, THREE], "serial within the one, parallel over both"
        made.service.gate.set()
        await until(lambda: waits(first) == [ONE, TWO] and waits(second) == [THREE])
        await until(lambda: len(made.service.read) == 4)
        assert [task for task in made.service.read if task != THREE] == [ONE, TWO, ONE], "repeats become one"


@pytest.mark.rule("K17")
async def test_too_many_changes_end_the_stream_and_nobody_elses_reading(fabric: Fabric) -> None:
    async with updating(fabric) as made:
        slow, other = await made.watching(ONE, TWO, pending=1), await made.watching(THREE)
        for opened in (slow, other):
            await made.updates.accept(opened.stream)
        await made.hint(ONE, TWO, THREE)
        await until(lambda: slow.stream.is_over)
        await until(lambda: waits(other) == [THREE])
        assert await made.service.get(ONE, Binding(endpoint="mcp")) is not None, "nor a poll"


@pytest.mark.rule("N11")
async def test_streams_that_open_together_share_places_and_a_watched_task_takes_none(
    fabric: Fabric,
) -> None:
    async with updating(fabric, watched_tasks=2) as made:
        first, over, same = (stream(Filter(task_ids=ids)).stream for ids in ((ONE, TWO), (TWO, THREE), (TWO, ONE)))
        assert made.updates.join(first), "nothing is subscribed yet"
        assert not made.updates.join(over)
        assert made.updates.join(same), "both are watched already"
        assert made.updates.join(stream(Filter(task_ids=("no id",))).stream), "what is no task takes no place"
        for opened in (first, same):
            await made.updates.watch(opened, {})
            made.updates.unwatch(opened)
        await until(lambda: not made.updates._subscriptions)
        assert made.updates.join(over), "whoever leaves gives its places back"


@pytest.mark.rule("K18")
async def test_hints_while_a_stream_opens_are_told_after_it_and_nothing_older(fabric: Fabric) -> None:
    async with updating(fabric) as made:
        opened = await made.watching(ONE, TWO, GONE)
        await made.hint(ONE)
        made.updates.read_again(opened.stream, GONE)
        assert waits(opened) == []
        await made.updates.accept(opened.stream)
        assert opened.stream.honoured.task_ids == (ONE, TWO), "K16"
        await until(lambda: waits(opened) == [ONE])
        assert made.service.read.count(GONE) == 1, "what was not accepted is not read again"


@pytest.mark.rule("K15")
async def test_a_hint_that_comes_twice_or_late_changes_nothing(fabric: Fabric) -> None:
    async with updating(fabric) as made:
        opened = await made.watching(ONE)
        await made.updates.accept(opened.stream)
        await made.hint(ONE, ONE)
        await until(lambda: waits(opened) == [ONE])
        told = len(made.service.read)
        for version in (b"3", b"2", b"1"):
            made._tasks.hint(task_hint_subject(task_key(ONE)), version, None)
        made.service.versions_of[ONE] = 2  # a replica that is behind
        made.updates.read_again(opened.stream, ONE)
        await until(lambda: len(made.service.read) > told)
        assert b'"taskId"' in opened.stream._pending[KEY + ONE].event(b"1")
        assert made.updates._watches[opened.stream].versions[ONE] == 3, "it never goes back"


@pytest.mark.rule("K15")
async def test_a_repeat_is_told_as_it_was_and_nothing_older_after_any_clearing(
    fabric: Fabric,
) -> None:
    async with updating(fabric) as made:
        opened = await made.watching(ONE)
        await made.updates.accept(opened.stream)
        await made.hint(ONE)
        await until(lambda: waits(opened) == [ONE])
        opened.stream._pending.clear()  # as a fence does, for a caller who may see it no more
        made.service.versions_of[ONE] = 1  # a replica that is behind
        read = len(made.service.read)
        for times in range(1, 4):
            made.updates.send_again(opened.stream, ONE)
            await until(lambda: len(made.service.read) == read + times)  # noqa: B023  # it is waited for at once
        assert waits(opened) == []
        made.service.versions_of[ONE] = 2
        made.updates.read_again(opened.stream, ONE)
        await until(lambda: waits(opened) == [ONE])


@pytest.mark.rule("K15")
async def test_a_change_that_comes_while_its_task_is_read_is_told_once(fabric: Fabric) -> None:
    """The reading has it already, and the one after it finds nothing new; a fence has it told again (S4)."""
    async with updating(fabric) as made, anyio.create_task_group() as tasks:
        opened = await made.watching(ONE)
        await made.updates.accept(opened.stream)
        tasks.start_soon(opened.run)
        await opened.told(1)
        made.service.gate = anyio.Event()
        await made.hint(ONE)
        await until(lambda: made.service.reading == [ONE])
        await made.hint(ONE)
        before = len(made.service.read)
        made.service.gate.set()
        await until(lambda: len(made.service.read) == before + 2)
        await opened.told(2)
        opened.stream.fence()
        await made.hint(ONE)
        await until(lambda: waits(opened) == [ONE])
        for key in opened.stream.lift():  # as an edge's hub does
            made.updates.send_again(opened.stream, key.removeprefix(KEY))
        assert await opened.told(3) == [ACK, TOLD, TOLD]
        await made.hint(ONE)
        assert await opened.told(4) == [ACK, TOLD, TOLD, TOLD]
        assert len(made.service.read) == before + 5, "each was told once"
        tasks.cancel_scope.cancel()
