"""How an edge leaves: clients are led away first, what runs is finished, and all of it is bounded (D14)."""

from __future__ import annotations

import time

import anyio
import pytest

from mcpfleet.edge.server.lifecycle import drain
from mcpfleet.edge.settings import EdgeSettings
from tests.kit.waiting import until
from tests.unit.edge.asgi import Exchange, Post, request
from tests.unit.edge.played_edge import Edge, edge, tool

pytestmark = pytest.mark.usefixtures("jumping")


def settings(**durations: float) -> EdgeSettings:
    return EdgeSettings(last_deadline=1_000, lame=durations.get("lame", 20.0), drain=durations.get("drain", 500.0))


async def ongoing(served: Edge, tasks: anyio.abc.TaskGroup) -> Exchange:
    """A request whose body is still on its way."""
    exchange = Exchange(Post(), parts=[])
    tasks.start_soon(served.application, exchange.scope, exchange.receive, exchange.send)
    await anyio.wait_all_tasks_blocked()
    return exchange


def begin_drain(served: Edge, tasks: anyio.abc.TaskGroup, chosen: EdgeSettings) -> anyio.Event:
    """Have an edge leave; the event is set once it has."""
    drained = anyio.Event()

    async def leave() -> None:
        await drain(served.wired, chosen)
        drained.set()

    tasks.start_soon(leave)
    return drained


async def test_meanwhile_what_arrives_is_served_and_told_to_connect_anew() -> None:
    async with edge(tool()) as served, anyio.create_task_group() as tasks:
        tasks.start_soon(drain, served.wired, settings())
        await anyio.wait_all_tasks_blocked()
        exchange = await served.answer(Post(request("tools/list")))
        assert exchange.status == 200
        assert exchange.headers[b"connection"] == b"close"


async def test_an_edge_without_requests_leaves_when_its_clients_had_their_time() -> None:
    async with edge(tool()) as served:
        began = time.monotonic()
        await drain(served.wired, settings(lame=20.0))
        assert 20 <= time.monotonic() - began < 40


@pytest.mark.rule("S17")
async def test_a_request_on_the_connection_of_an_ended_stream_is_served_and_led_away() -> None:
    """A response that began before the drain could not say that its connection closes, so its client uses it again."""
    async with edge(tool()) as served, anyio.create_task_group() as tasks:
        exchange = await ongoing(served, tasks)
        drained = begin_drain(served, tasks, settings(lame=3.0))
        await until(lambda: served.application.is_draining)
        await anyio.sleep(4)  # it is lame no more
        exchange.leave()
        await anyio.wait_all_tasks_blocked()
        again = await served.answer(Post(request("tools/list")))
        assert (again.status, again.headers[b"connection"]) == (200, b"close")
        assert not drained.is_set()
        with anyio.fail_after(100):
            await drained.wait()


@pytest.mark.rule("P7")
async def test_a_request_that_runs_is_finished_first() -> None:
    async with edge(tool()) as served, anyio.create_task_group() as tasks:
        exchange = await ongoing(served, tasks)
        drained = begin_drain(served, tasks, settings(lame=10.0))
        await anyio.sleep(30)
        too_early = drained.is_set()
        exchange.leave()
        with anyio.fail_after(100):
            await drained.wait()
    assert not too_early


async def test_a_request_that_does_not_end_holds_the_edge_up_for_a_bounded_time() -> None:
    async with edge(tool()) as served, anyio.create_task_group() as tasks:
        exchange = await ongoing(served, tasks)
        began = time.monotonic()
        await drain(served.wired, settings(lame=10.0, drain=20.0))
        assert 30 <= time.monotonic() - began < 60
        exchange.leave()


def quick(**durations: float) -> EdgeSettings:
    return EdgeSettings(
        last_deadline=1_000, lame=0.0, drain=durations.get("drain", 500.0), drain_grace=durations.get("grace", 60.0)
    )


@pytest.mark.rule("S23")
async def test_what_a_client_asks_next_is_served_after_its_call_and_holds_nothing_up() -> None:
    """The official Python client asks for the tool list before it returns a result."""
    async with edge(tool()) as served, anyio.create_task_group() as tasks:
        await served.answer(Post())
        began = time.monotonic()
        drained = begin_drain(served, tasks, quick())
        await until(lambda: served.application.is_draining)
        await anyio.sleep(30)
        listed = await served.answer(Post(request("tools/list")))
        assert (listed.status, listed.headers[b"connection"]) == (200, b"close")
        assert not drained.is_set()
        await drained.wait()
        assert 60 <= time.monotonic() - began < 120


@pytest.mark.rule("S23")
async def test_each_call_has_its_grace_within_the_drain() -> None:
    async with edge(tool()) as served, anyio.create_task_group() as tasks:

        async def call_on() -> None:
            while True:
                await served.answer(Post())

        tasks.start_soon(call_on)
        await anyio.wait_all_tasks_blocked()
        began = time.monotonic()
        await drain(served.wired, quick(drain=40.0, grace=20.0))
        tasks.cancel_scope.cancel()
        assert 40 <= time.monotonic() - began < 80


@pytest.mark.rule("S23")
async def test_without_a_call_nobody_is_waited_for() -> None:
    async with edge(tool()) as served:
        await served.answer(Post(request("tools/list")))
        began = time.monotonic()
        await drain(served.wired, quick(grace=100.0))
        assert time.monotonic() - began < 50
