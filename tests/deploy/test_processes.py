"""Each overlay's pods as processes of this machine: they find each other, answer a call, and drain."""

from __future__ import annotations

import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from mcpfleet.contracts.permissions import permissions, users
from tests.deploy import figures, manifests
from tests.deploy.local import LocalFleet, local_fleet, startable
from tests.deploy.manifests import OVERLAYS, POOLS
from tests.kit.kustomize import pod
from tests.kit.otlp import OtlpReceiver, otlp_receiver
from tests.kit.postgres import postgres_server
from tests.kit.raw import Answer, Connection

AWAITED = {"hint.authority", "authorization.changes", "authorization.limits", "authorization.revoke"}
"""What the table permits before anybody hears it."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def postgres() -> Any:
    with postgres_server() as server:
        yield server


@pytest.fixture
async def collector() -> AsyncIterator[OtlpReceiver]:
    async with otlp_receiver() as receiver:
        yield receiver


async def called(fleet: LocalFleet, tool: str, **arguments: object) -> Answer:
    """Call a tool as the ingress would pass it on: under the name that clients know."""
    edge = fleet.processes["edge"]
    variables = manifests.environment(manifests.fleet(fleet.overlay)["edge"], manifests.config_maps(fleet.overlay))
    host = variables["MCPFLEET_PUBLIC_HOSTS"].split(",")[0]
    async with await anyio.connect_tcp("127.0.0.1", edge.bind) as stream:
        connection = Connection(stream, host, "/mcp")
        await connection.send("tools/call", {"name": tool, "arguments": arguments})
        with anyio.fail_after(30):
            return await connection.answer()


async def connections(fleet: LocalFleet) -> list[dict[str, Any]]:
    """Every client of the NATS servers, with its user and what it hears."""
    found: list[dict[str, Any]] = []
    async with httpx2.AsyncClient(timeout=5) as client:
        for port in fleet.monitors:
            answer = await client.get(f"http://127.0.0.1:{port}/connz?auth=true&subs=true")
            found += [{**each, "port": port} for each in answer.json()["connections"]]
    return found


def covers(pattern: str, subject: str) -> bool:
    """Whether a permission allows a subscription."""
    allowed, wanted = pattern.split("."), subject.split(".")
    if allowed[-1] == ">":
        return len(wanted) >= len(allowed) and covers(".".join(allowed[:-1]), ".".join(wanted[: len(allowed) - 1]))
    pairs = zip(allowed, wanted, strict=False)
    return len(allowed) == len(wanted) and all(one in ("*", other) for one, other in pairs)


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_the_manifests_processes_serve_a_call_and_drain(
    overlay: str, tmp_path: Path, made_secrets: dict[str, dict[str, str]], postgres: Any, collector: OtlpReceiver
) -> None:
    """From the migration to the exit codes, under the users and permissions of the NATS component, over TLS."""
    async with (
        postgres.database() as store,
        local_fleet(overlay, tmp_path, made_secrets, store=store, collector=collector.endpoint) as fleet,
    ):
        await _serves(fleet, collector)
        await _heard(fleet)
        await _exports(fleet)
        await _drains(fleet)
    log = "".join((tmp_path / f"nats-{number}" / "log").read_text() for number in range(3))
    assert not re.search(r"violation|authentication error", log, re.IGNORECASE), log


async def _serves(fleet: LocalFleet, collector: OtlpReceiver) -> None:
    answer = await called(fleet, "search", query="austen")
    assert answer.status == 200, answer.body
    assert answer.message["result"]["isError"] is False
    assert "Austen" in str(answer.message["result"]["structuredContent"])
    if fleet.overlay == "dev":  # which records every request
        await collector.wait_for(lambda spans: {"edge", "worker"} <= {span.service for span in spans}, 20)


async def _heard(fleet: LocalFleet) -> None:
    """Each process has the user of its role, hears all that the user may hear, and was refused nothing."""
    there = await connections(fleet)
    assert len({each["port"] for each in there}) == len(fleet.monitors), "the servers are one"
    for user, pool in users(POOLS).items():
        if user == "operator":
            continue
        own = [subject for each in there if each["authorized_user"] == user for subject in each["subscriptions_list"]]
        for pattern in permissions(user, pool, "mcpfleet")["subscribe"]["allow"]:
            if user in _users(fleet) and pattern.removeprefix("mcpfleet.") not in AWAITED:
                assert any(covers(pattern, subject) or _same_edge(pattern, subject) for subject in own), (user, pattern)
    for running in fleet.processes.values():
        figures = (await running.get("/metrics")).text
        assert re.search(r"^mcpfleet_bus_refusals_total\{.*\} 0", figures, re.MULTILINE), running.name
        assert re.search(r"^mcpfleet_bus_link_up\{.*\} 1", figures, re.MULTILINE), running.name


async def _exports(fleet: LocalFleet) -> None:
    """What dashboards, alerts and rules read is what these processes export."""
    there = set(figures.recorded())
    for running in fleet.processes.values():
        kinds = figures.types((await running.get("/metrics")).text)
        there |= {name for each, kind in kinds.items() for name in figures.series(each, kind)}
    read = {name for query in figures.queries() for name in query.names()}
    assert read - there <= figures.COMING.keys()


def _users(fleet: LocalFleet) -> set[str]:
    """The NATS users of what runs."""
    found = set()
    for name in fleet.processes:
        needed = {secret for secret, key in manifests.secrets(startable(fleet.overlay)[name]) if key == "password"}
        found |= {secret.removeprefix("nats-") for secret in needed}
    return found


def _same_edge(pattern: str, subject: str) -> bool:
    """Whether both are of an edge, which hears by one subscription what stands in the table subject by subject."""
    return all(re.fullmatch(r"mcpfleet\.edge\.[^.]+\..*", each) for each in (pattern, subject))


async def _drains(fleet: LocalFleet) -> None:
    """Edges first; each ends by itself within the time that its pod has."""
    order = sorted(fleet.processes.values(), key=lambda running: running.name != "edge")
    for running in order:
        workload = manifests.fleet(fleet.overlay)[running.name]
        running.child.signal(signal.SIGTERM)
        with anyio.fail_after((pod(workload) or {})["terminationGracePeriodSeconds"]):
            assert await running.child.listen() == 0, fleet.log(running.name)
