"""Observers in a whole fleet: the operator's in every process, the application's in its workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpfleet.app import App, Context, events
from mcpfleet.process.service import Process
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.accounts_app import ANN, ANNS
from tests.contract.fleet.listener import listening
from tests.contract.fleet.test_files import NOTE, noting
from tests.contract.fleet.test_policy import revoke_policy
from tests.contract.fleet.vault_app import Vault
from tests.contract.fleet.vault_app import fleet as vault_fleet
from tests.contract.fleet.vault_app import read as post_read
from tests.contract.fleet.visitor import Visitors
from tests.kit.observing import Told
from tests.kit.waiting import until

OPERATOR = Told()
"""The events that MCPFLEET_OBSERVER of these tests is told."""


def shop() -> tuple[App, Told]:
    app, told = App("shop", version="1"), Told()
    app.observer(told)

    @app.tool()
    async def look() -> str:
        """Look."""
        return "a lamp"

    @app.tool(task="required")
    async def count(ctx: Context) -> str:
        """Count."""
        return str(ctx.is_task)

    return app, told


@pytest.mark.rule("X69", "invariant 9")
async def test_processes_requests_streams_and_snapshots_are_told_and_no_secret_is() -> None:
    OPERATOR.events.clear()
    app, told = shop()
    async with LocalFleet(app, environment={"MCPFLEET_OBSERVER": f"{__name__}:OPERATOR"}) as fleet:
        async with fleet.client() as client, fleet.http() as http:
            await client.call_tool("look", {})
            async with listening(http, "/mcp", toolsListChanged=True):
                await until(lambda: OPERATOR.of(events.StreamBegan))
            await until(lambda: OPERATOR.of(events.StreamEnded))
        await until(lambda: told.of(events.RequestEnded))
    services = {"authorization", "catalog", "edge", "subscriptions", "tasks", "worker"}
    for kind in (events.ProcessBegan, events.ProcessEnded):
        assert {event.service for event in OPERATOR.of(kind)} == services
    assert {event.service for event in OPERATOR.of(events.SnapshotChanged)} == {"catalog", "edge"}
    [ended] = [each for each in OPERATOR.of(events.RequestEnded) if each.method == "tools/call"]
    assert (ended.service, ended.target, ended.error) == ("edge", "look", None)
    [worked] = told.of(events.RequestEnded)
    assert (worked.service, worked.method, worked.target, worked.trace) == ("worker", "tool", "look", ended.trace)
    [stream] = OPERATOR.of(events.StreamEnded)
    assert (stream.endpoint, stream.kind, stream.reason) == ("mcp", "listen", "client_gone")
    assert told.kinds()[0] == "ProcessBegan"
    assert told.kinds()[-1] == "ProcessEnded"


@pytest.mark.rule("X69")
async def test_sessions_and_tasks_are_told_by_those_who_keep_them() -> None:
    OPERATOR.events.clear()
    app, told = shop()
    environment = {"MCPFLEET_OBSERVER": f"{__name__}:OPERATOR"}
    async with LocalFleet(app, environment=environment) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        await until(lambda: OPERATOR.of(events.ClientSessionBegan))
        assert await visitor.delete() in (200, 202, 204)
        await until(lambda: OPERATOR.of(events.ClientSessionEnded))
        await make_task(fleet)
        await until(lambda: len(OPERATOR.of(events.TaskEnded)) >= 2)
    [begun], [ended] = OPERATOR.of(events.ClientSessionBegan), OPERATOR.of(events.ClientSessionEnded)
    assert (begun.service, begun.session, ended.reason) == ("subscriptions", ended.session, "client")
    [made] = [each for each in OPERATOR.of(events.TaskBegan) if each.service == "tasks"]
    [attempt] = told.of(events.TaskBegan)
    assert (attempt.task, attempt.tool) == (made.task, "count")
    [over] = [each for each in OPERATOR.of(events.TaskEnded) if each.service == "tasks"]
    assert (over.task, over.status) == (made.task, "completed")


def figures(fleet: LocalFleet, service: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """The values of a service's metrics, by name and labels; a histogram's are counts."""
    process: Process[Any] = fleet.edges[0].process if service == "edge" else fleet.subscriptions.process
    families = process.telemetry.metrics.read()
    return {
        (family.name, point.labels): sum(point.buckets) if family.kind == "histogram" else point.value
        for family in families
        for point in family.points
    }


@pytest.mark.rule("X70")
async def test_metrics_count_sessions_grants_and_how_long_streams_were_open() -> None:
    app, _ = shop()

    @app.resource("shop://lamp")
    async def lamp() -> str:
        return "on"

    async with LocalFleet(app) as fleet, fleet.http() as http, Visitors(fleet) as visitors:
        async with listening(http, "/mcp", resourceSubscriptions=["shop://lamp"]):
            await until(lambda: figures(fleet, "edge")["mcpfleet.edge.grants.open", ()] == 1)
        await until(lambda: figures(fleet, "edge")["mcpfleet.edge.grants.open", ()] == 0)
        edge = figures(fleet, "edge")
        assert edge["mcpfleet.edge.grants.ended", ("unwatched",)] == 1
        assert edge["mcpfleet.edge.streams.duration", ("listen", "client_gone")] == 1
        visitor = await visitors.one()
        await until(lambda: figures(fleet, "subscriptions")["mcpfleet.subscriptions.sessions.begun", ()] == 1)
        await visitor.delete()
        ended = ("mcpfleet.subscriptions.sessions.ended", ("client",))
        await until(lambda: figures(fleet, "subscriptions").get(ended) == 1)
        await until(lambda: figures(fleet, "subscriptions").get(("mcpfleet.subscriptions.sessions", ())) == 0)


@pytest.mark.rule("X70")
async def test_metrics_count_fences_renewals_fetched_files_and_grants_by_reason(tmp_path: Path) -> None:
    vault = Vault()
    note = tmp_path / "note.md"
    note.write_text("hello")
    noting(vault.app, note)
    async with (
        vault_fleet(vault, {"MCPFLEET_PERMISSION_LASTS": "2"}) as fleet,
        fleet.http() as http,
        listening(http, "/mcp", token=ANN, resourceSubscriptions=[ANNS]),
    ):
        renewed = ("mcpfleet.edge.streams.renewals", ("renewed",))
        await until(lambda: figures(fleet, "edge").get(renewed, 0) >= 1)
        assert (await post_read(http, ANN, NOTE)).status_code == 200
        assert figures(fleet, "edge")["mcpfleet.edge.files.fetches", ("fetched",)] == 1
        await revoke_policy(fleet)
        await until(lambda: figures(fleet, "edge")["mcpfleet.edge.streams.fences", ()] == 1)
        vault.readers.clear()
        vault.app.permits_changed()
        refused = ("mcpfleet.edge.grants.ended", ("refused",))
        while figures(fleet, "edge").get(refused) != 1:
            vault.app.publish(ANNS)
            await anyio.sleep(0.05)
        assert figures(fleet, "edge")["mcpfleet.edge.grants.open", ()] == 0
        assert figures(fleet, "edge")["mcpfleet.edge.streams.cuts", ()] == 0
        labels = {label for (name, found) in figures(fleet, "edge") if "streams" in name for label in found}
        assert not labels & {"ann", ANNS, ANN}, "no label tells a caller or a URI"


async def make_task(fleet: LocalFleet) -> None:
    """Have a task made."""
    from tests.unit.edge.asgi import CAPABILITIES_KEY, MODERN, call

    declared: dict[str, Any] = {CAPABILITIES_KEY: {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    headers = {
        "accept": "application/json, text/event-stream", "mcp-protocol-version": MODERN, "mcp-method": "tools/call",
        "mcp-name": "count",
    }  # fmt: skip
    async with fleet.http() as http:
        made = await http.post("/mcp", json=call("count", {}, meta=declared), headers=headers)
    assert made.json()["result"]["resultType"] == "task"
