"""The account of a process's end, for each role and phase: what remained, and how streams ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import pytest

from mcpfleet.app import App
from mcpfleet.process.shutdown import Shutdown
from mcpfleet.testing.local import LocalFleet
from mcpfleet.testing.service import AnyService
from tests.contract.fleet.listener import listening
from tests.contract.fleet.visitor import Visitors
from tests.kit.waiting import until

SHORT = {"MCPFLEET_DRAIN": "0.3", "MCPFLEET_LAST_DEADLINE": "30"}
ROLES = {"authorization", "catalog", "subscriptions", "tasks", "worker", "edge"}


def holding(started: list[str], *, lifespan: Any = None) -> App:
    app = App("library", version="1.0.0", lifespan=lifespan)

    @app.tool(timeout=60)
    async def hold() -> str:
        """Take long."""
        started.append("hold")
        await anyio.sleep(50)
        return "held"

    @app.tool()
    async def echo() -> str:
        """Answer at once."""
        return "echo"

    return app


@asynccontextmanager
async def calling(fleet: LocalFleet, started: list[str], edge: int = 0) -> AsyncIterator[None]:
    """A call that runs, for the length of a block; how it ends is not asked."""

    async def call() -> None:
        async with fleet.client(edge) as client:
            await client.call_tool("hold")

    calls = asyncio.create_task(call())
    await until(lambda: started)
    try:
        yield
    finally:
        calls.cancel()
        await asyncio.wait({calls})


def told(shutdown: Shutdown | None) -> Shutdown:
    assert shutdown is not None
    return shutdown


def remained(shutdown: Shutdown) -> set[tuple[str, str]]:
    return {(each.kind, each.name) for each in shutdown.residual}


@pytest.mark.rule("X72")
async def test_a_fleet_that_has_nothing_to_do_ends_completely() -> None:
    async with LocalFleet(holding([])) as fleet, fleet.client() as client:
        await client.call_tool("echo")
    assert {each.role for each in fleet.shutdowns} == ROLES
    assert {each.role: (each.unproven, each.residual, each.cause) for each in fleet.shutdowns} == dict.fromkeys(
        ROLES, ((), (), "told to stop")
    )
    assert all(each.complete for each in fleet.shutdowns)
    assert [line["level"] for line in fleet.lines("shutdown")] == ["info"] * len(ROLES)
    edge = told(fleet.edges[0].shutdown)
    assert list(edge.phases) == ["lame", "streams", "calls", "quiet", "leases", "bus"]


@pytest.mark.rule("X72")
async def test_an_edge_names_the_call_that_it_had_to_cut() -> None:
    started: list[str] = []
    async with LocalFleet(holding(started), edges=2, environment=SHORT) as fleet:
        async with calling(fleet, started):
            await fleet.edges[0].stop()
        edge = told(fleet.edges[0].shutdown)
    assert remained(edge) == {("request", "tools/call hold")}
    assert (edge.calls_cut, edge.complete) == (1, False)
    assert "last words" in edge.phases


@pytest.mark.rule("X72")
async def test_a_worker_names_the_call_that_it_gave_up() -> None:
    started: list[str] = []
    async with LocalFleet(holding(started), workers=1, environment=SHORT) as fleet, calling(fleet, started):
        await fleet.workers[0].stop()
        worker = told(fleet.workers[0].shutdown)
    assert remained(worker) == {("call", "hold")}
    assert (worker.calls_cut, worker.complete) == (1, False)
    assert worker.unproven == ()


@pytest.mark.rule("X72")
async def test_the_calls_that_end_in_time_are_counted() -> None:
    release = anyio.Event()
    app = App("library", version="1.0.0")
    started: list[str] = []

    @app.tool()
    async def hold() -> str:
        """Wait for the test."""
        started.append("hold")
        await until(release.is_set, within=20)
        return "held"

    async with LocalFleet(app) as fleet, anyio.create_task_group() as tasks, calling(fleet, started):
        tasks.start_soon(fleet.workers[0].stop)
        await until(lambda: fleet.lines("stopped taking calls"))
        release.set()
        await fleet.workers[0].ended.wait()
        worker = told(fleet.workers[0].shutdown)
    assert (worker.calls_finished, worker.calls_cut, worker.complete) == (1, 0, True)


@pytest.mark.rule("X72")
@pytest.mark.parametrize(
    ("role", "phase", "kind", "name"),
    [("edge", "lame", "request", "tools/call hold"), ("worker", "work", "call", "hold")],
)
async def test_a_second_signal_has_the_phase_and_what_is_there_named(
    role: str, phase: str, kind: str, name: str
) -> None:
    started: list[str] = []
    async with LocalFleet(holding(started), environment={"MCPFLEET_LAME": "20"}) as fleet, calling(fleet, started):
        service: Any = fleet.edges[0] if role == "edge" else fleet.workers[0]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(service.stop)
            await until(lambda: service.process.departure.is_in(phase))
            await service.stop_now()
        shutdown = told(service.shutdown)
    assert remained(shutdown) == {(kind, name), ("phase", phase)}
    assert shutdown.cause == "told to stop, then a second signal"
    assert "bus drain" in shutdown.unproven
    assert [line["process"] for line in fleet.lines("shutdown")].count(service.id) == 1


def cut_in(service: AnyService, name: str) -> asyncio.Event:
    """Have the second signal come as a phase begins; returns what is set then."""
    departure, reached = service.process.departure, asyncio.Event()
    plain = departure.phase

    @contextmanager
    def phase(begun: str) -> Iterator[None]:
        with plain(begun):
            if begun == name:
                departure.cut("a second signal")
                reached.set()
            yield

    departure.phase = phase  # type: ignore[assignment,method-assign]  # it says when to strike, and is the phase itself
    return reached


async def cut_each(services: Mapping[str, AnyService]) -> None:
    """Stop each of these, and end it in its phase; its record names the phase, and is not complete."""
    for name, service in services.items():
        reached = cut_in(service, name)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(service.stop)
            with anyio.fail_after(20):
                await reached.wait()
            await service.stop_now()
        shutdown = told(service.shutdown)
        assert ("phase", name) in remained(shutdown), (shutdown.role, name)
        assert shutdown.cause == "told to stop, then a second signal"
        assert not shutdown.complete


@pytest.mark.rule("X72")
async def test_an_edge_and_a_worker_that_are_cut_in_any_phase_name_it() -> None:
    started: list[str] = []
    phases = ("lame", "streams", "calls", "quiet", "leases", "bus", "last words")
    environment = {"MCPFLEET_DRAIN": "2", "MCPFLEET_LAST_DEADLINE": "30"}
    async with LocalFleet(holding(started), edges=len(phases), environment=environment) as fleet:
        for _ in range(3):
            await fleet.add_worker(holding(started))
        await cut_each(dict(zip(("work", "lifespans", "bus"), fleet.workers[1:], strict=True)))
        *others, last = fleet.edges
        await cut_each(dict(zip(phases, others, strict=False)))
        async with calling(fleet, started, len(phases) - 1):  # its patience ends
            await cut_each({phases[-1]: last})


@pytest.mark.rule("X72")
@pytest.mark.parametrize("phase", ["questions", "bus"])
async def test_a_service_that_is_cut_in_any_phase_names_it(phase: str) -> None:
    async with LocalFleet(holding([])) as fleet:
        for service in (fleet.tasks, fleet.subscriptions, fleet.catalog, fleet.authorization):
            await cut_each({phase: service})


@pytest.mark.rule("X72")
async def test_a_lifespan_that_does_not_end_is_named_by_its_phase() -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        yield
        await anyio.sleep(5)

    async with LocalFleet(holding([], lifespan=opened)) as fleet:
        worker = fleet.workers[0]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.stop)
            await until(lambda: worker.process.departure.is_in("lifespans"))
            await worker.stop_now()
        assert remained(told(worker.shutdown)) == {("phase", "lifespans")}


@pytest.mark.rule("X72")
@pytest.mark.parametrize("role", sorted(ROLES))
async def test_every_role_without_its_bus_says_that_the_drain_is_unproven(role: str) -> None:
    async with LocalFleet(holding([]), environment=SHORT) as fleet:
        service: Any = {
            "edge": fleet.edges[0],
            "worker": fleet.workers[0],
            "authorization": fleet.authorization,
            "catalog": fleet.catalog,
            "subscriptions": fleet.subscriptions,
            "tasks": fleet.tasks,
        }[role]
        service.cut()
        await service.stop()
        shutdown = told(service.shutdown)
        lines = [line["level"] for line in fleet.lines("shutdown") if line["process"] == service.id]
    assert "bus drain" in shutdown.unproven
    assert "store" not in shutdown.unproven
    assert not shutdown.complete
    assert lines == ["warning"]


@pytest.mark.rule("X71", "X72")
async def test_how_each_stream_ended_is_recorded() -> None:
    async with LocalFleet(holding([]), edges=2) as fleet:
        async with (
            fleet.http() as http,
            listening(http, "/mcp", toolsListChanged=True) as [listener],
            Visitors(fleet) as visitors,
        ):
            visitor = await visitors.one()
            async with visitor.watching():
                await fleet.edges[0].stop()
                await listener.over()
                await until(lambda: len(fleet.stream_ends) == 2)
        edge = told(fleet.edges[0].shutdown)
    listen, session = sorted(fleet.stream_ends, key=lambda each: each.kind)
    assert (listen.kind, listen.reason, listen.frames) == ("listen", "shutdown", 2)
    assert listen.terminal is not None
    assert listen.terminal["result"]["resultType"] == "complete"
    assert (session.kind, session.reason, session.frames, session.terminal) == ("session", "shutdown", 0, None)
    assert listen.seconds > 0
    assert edge.streams == {"shutdown": 2}
    assert edge.streams_without_terminal == 1
    with pytest.raises(AttributeError):
        listen.reason = "other"  # type: ignore[misc]  # it is frozen


@pytest.mark.rule("X71")
async def test_a_client_that_leaves_has_no_last_message() -> None:
    async with LocalFleet(holding([])) as fleet:
        async with fleet.http() as http, listening(http, "/mcp", toolsListChanged=True):
            pass
        await until(lambda: fleet.stream_ends)
    (end,) = fleet.stream_ends
    assert (end.reason, end.frames, end.terminal) == ("client_gone", 1, None)
