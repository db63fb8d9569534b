"""The console over its stream: what a fleet of real processes says of itself, and who may look."""

from __future__ import annotations

import signal
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
from mcp import Client

from mcpfleet.contracts.permissions import pool_user
from mcpfleet.contracts.stats import Role, Stats, pool_stats_subject, service_stats_subject
from mcpfleet.testing.fleet import Fleet
from tests.contract.fleet.listener import listening
from tests.fleet.consoles import ON, bus_as, consoles, looking
from tests.fleet.tasking import complete, make, take
from tests.kit.otlp import otlp_receiver
from tests.kit.waiting import until

APP = Path(__file__).with_name("app.py")
LIBRARY = Path(__file__).with_name("library_app.py")
BOOK = "library://books/1"


async def test_an_edges_console_shows_the_whole_fleet_and_a_stream_open_and_close() -> None:
    """It shows another edge's streams too: each process speaks for itself, and each console hears all."""
    async with Fleet(LIBRARY, edges=2, environment=ON) as fleet, looking(consoles(fleet, "edge")[0]) as pictures:
        seen = await pictures.until(lambda each: each["totals"]["processes"] == 7)
        roles = [node["role"] for node in seen["nodes"]]
        assert roles == ["authorization", "catalog", "edge", "edge", "subscriptions", "tasks", "worker"]
        assert {node["state"] for node in seen["nodes"]} == {"ready"}
        async with httpx2.AsyncClient() as http:
            async with listening(http, fleet.urls[1], 2, resourceSubscriptions=[BOOK]):
                await pictures.until(lambda each: each["totals"]["streams"] == 2)
                async with Client(fleet.urls[0]) as client:
                    await client.call_tool("rename", {"book": 1, "title": "Emma"})
                await pictures.until(lambda each: each["totals"]["hints"] > 0 and each["totals"]["told"] > 0)
            await pictures.until(lambda each: each["totals"]["streams"] == 0)
        fleet.edges[1].signal(signal.SIGTERM)
        await pictures.until(lambda each: each["totals"]["processes"] == 6)
        fleet.edges[0].signal(signal.SIGTERM)
        await until(lambda: not fleet.edges[0].is_running)
        assert [edge.exit_code for edge in fleet.edges] == [0, 0], "an open page holds nobody up"
        assert '"level": "error"' not in fleet.logs()


async def test_a_services_console_shows_a_task_move_through_its_states() -> None:
    async with (
        Fleet(APP, environment=ON) as fleet,
        bus_as(fleet, "edge") as edge,
        bus_as(fleet, pool_user(fleet.pool)) as worker,
        looking(next(url for role in Role for url in consoles(fleet, role))) as pictures,
    ):
        await make(edge, fleet.pool)
        seen = await pictures.until(lambda each: each["tasks"]["ready"] == 1 and each["tasks"]["made"] == 1)
        assert {"who": "the fleet", "what": "waiting tasks that no worker takes: 1"} in seen["stuck"]
        task = await take(worker, fleet.pool)
        await pictures.until(lambda each: each["tasks"]["held"] == 1 and each["tasks"]["ready"] == 0)
        await complete(worker, fleet.pool, task)
        await pictures.until(lambda each: each["tasks"]["held"] == 0 and each["tasks"].get("completed") == 1)


async def test_an_error_is_shown_with_its_trace_and_without_what_the_caller_sent() -> None:
    """A trace is a link where it is recorded, and Jaeger's address is known."""
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(otlp_receiver())  # at once, where a closed port is tried again
        traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_METRICS_EXPORTER": "none"}
        environment = {**ON, **traced, "MCPFLEET_JAEGER_URL": "http://jaeger.example:16686/"}
        fleet = await stack.enter_async_context(Fleet(APP, environment=environment))
        pictures = await stack.enter_async_context(looking(consoles(fleet, "edge")[0]))
        async with Client(fleet.urls[0]) as client:
            await client.call_tool("fail", {"secret": "hunter2"})
        seen = await pictures.until(lambda each: any(one["event"] == "handler failed" for one in each["troubles"]))
        [failed] = [one for one in seen["troubles"] if one["event"] == "handler failed"]
        assert (failed["level"], failed["of"]) == ("error", "tool=fail")
        assert failed["who"].startswith(f"worker of {fleet.pool} ")
        assert failed["link"] == f"http://jaeger.example:16686/trace/{failed['trace']}"
        assert "hunter2" not in str(seen)


async def test_a_worker_has_no_console_and_speaks_for_its_pool_alone() -> None:
    """Invariant 13: NATS refuses it another's subject, and what it says under its own is bounded."""
    async with (
        Fleet(APP, environment=ON) as fleet,
        bus_as(fleet, pool_user(fleet.pool)) as worker,
        looking(consoles(fleet, "edge")[0]) as pictures,
    ):
        assert consoles(fleet, "worker") == []
        await pictures.until(lambda each: each["totals"]["processes"] == 6)
        lie = Stats(started=0, ready=True, numbers={"slots": 7}).model_dump_json().encode()
        worker.publish(service_stats_subject(Role.TASKS, "0" * 16), lie)
        worker.publish(pool_stats_subject(fleet.pool, "1" * 16), b"x" * 20_000)
        worker.publish(pool_stats_subject(fleet.pool, "2" * 16), lie)
        seen = await pictures.until(lambda each: each["totals"]["processes"] == 7)
        found = [(node["role"], node["pool"]) for node in seen["nodes"] if node["process"] in ("0" * 16, "1" * 16)]
        assert found == []
        [own] = [node for node in seen["nodes"] if node["process"] == "2" * 16]
        assert (own["role"], own["pool"], own["slots"]) == ("worker", fleet.pool, 7)
