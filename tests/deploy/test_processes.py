"""Each overlay's pods as processes of this machine: they find each other, answer a call, and drain."""

from __future__ import annotations

import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest

from mcpfleet.console.page import PATH
from mcpfleet.contracts.permissions import permissions, users
from tests.contract.fleet.listener import ACK, END, listening
from tests.deploy import figures, manifests
from tests.deploy.local import LocalFleet, local_fleet, startable
from tests.deploy.manifests import OVERLAYS, POOLS
from tests.fleet.consoles import looking
from tests.kit.issuer import Issuer, issuer
from tests.kit.kustomize import pod
from tests.kit.otlp import OtlpReceiver, otlp_receiver
from tests.kit.postgres import postgres_server
from tests.kit.tasks import TaskClient
from tests.unit.edge.asgi import MODERN, request

RESOURCE = "https://mcp.example.com/mcp"
"""The audience of tokens: the endpoint's URL as the overlay has it."""
AWAITED = {
    "mcpfleet.figures.>",
    "mcpfleet.authorization.visible",
    "mcpfleet.authorization.judge",
    "mcpfleet.pool.library.*.permit",
    "mcpfleet.pool.library.watched",
    "mcpfleet.hint.resource.*.*.*",
    "mcpfleet.hint.extension.*.*.*",
    "mcpfleet.hint.task.*",
}
"""Subjects that are heard only while a stream, a console, a policy or the application wants them."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def postgres() -> Any:
    with postgres_server() as server:
        yield server


@pytest.fixture
async def collector() -> AsyncIterator[OtlpReceiver]:
    async with otlp_receiver() as receiver:
        yield receiver


@asynccontextmanager
async def client(fleet: LocalFleet, token: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client whose requests come as the ingress passes them on: under the name that the fleet is known by."""
    edge = manifests.fleet(fleet.overlay)["edge"]
    variables = manifests.environment(edge, manifests.config_maps(fleet.overlay))
    host = urlsplit(variables.get("MCPFLEET_PUBLIC_URL", "http://localhost")).netloc
    headers = {"host": host, "authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{fleet.processes['edge'].bind}", headers=headers, timeout=30
    ) as http:
        yield http


async def call(http: httpx2.AsyncClient, tool: str, **arguments: object) -> httpx2.Response:
    """Call a tool."""
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool}
    return await http.post("/mcp", json=request("tools/call", {"name": tool, "arguments": arguments}), headers=headers)


async def connections(fleet: LocalFleet) -> list[dict[str, Any]]:
    """Every client of the NATS servers, with its user and what it hears."""
    found: list[dict[str, Any]] = []
    async with httpx2.AsyncClient(timeout=5) as http:
        for port in fleet.monitors:
            answer = await http.get(f"http://127.0.0.1:{port}/connz?auth=true&subs=true")
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
async def test_the_manifests_processes_serve_and_drain(
    overlay: str, tmp_path: Path, made_secrets: dict[str, dict[str, str]], postgres: Any, collector: OtlpReceiver
) -> None:
    """From the migration to the exit codes, under the users and permissions of the NATS component, over TLS."""
    async with (
        issuer() as tokens,
        postgres.database() as store,
        local_fleet(
            overlay, tmp_path, made_secrets, store=store, addresses=_addresses(overlay, collector, tokens)
        ) as fleet,
        client(fleet, tokens.token(RESOURCE)) as http,
    ):
        await _serves(fleet, http, collector)
        await _heard(fleet)
        await _exports(fleet)
        await _shows(fleet)
        tasks = TaskClient(http)
        async with listening(http, "/mcp", toolsListChanged=True) as [stream]:
            stock = await tasks.start("take_stock")
            await _loses_a_server(fleet, http)
            await _finishes(tasks, stock)
            await _drains(fleet)
            await stream.over()
        assert stream.kinds() == [ACK, END]
    log = "".join((tmp_path / f"nats-{number}" / "log").read_text() for number in range(3))
    assert not re.search(r"violation|authentication error", log, re.IGNORECASE), log


def _addresses(overlay: str, collector: OtlpReceiver, tokens: Issuer) -> dict[str, str]:
    """Return the variables of this machine: the collector's address, and the issuer's where tokens are asked for."""
    own = manifests.environment(manifests.fleet(overlay)["edge"], manifests.config_maps(overlay))
    issuers = {"MCPFLEET_ISSUER": tokens.url} if "MCPFLEET_ISSUER" in own else {}
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, **issuers}


async def _serves(fleet: LocalFleet, http: httpx2.AsyncClient, collector: OtlpReceiver) -> None:
    answer = await call(http, "search", query="austen")
    assert answer.status_code == 200, answer.text
    assert answer.json()["result"]["isError"] is False
    assert "Austen" in str(answer.json()["result"]["structuredContent"])
    if fleet.overlay == "dev":  # which records every request
        await collector.wait_for(lambda spans: {"edge", "worker"} <= {span.service for span in spans}, 20)
    else:  # which admits nobody without a token
        http.headers["authorization"], good = "Bearer no-token", http.headers["authorization"]
        assert (await call(http, "search", query="austen")).status_code == 401
        http.headers["authorization"] = good


async def _heard(fleet: LocalFleet) -> None:
    """Each process has the user of its role, hears all that the user may hear, and was refused nothing."""
    there = await connections(fleet)
    assert len({each["port"] for each in there}) == len(fleet.monitors), "the servers are one"
    for user, pool in users(POOLS).items():
        if user == "operator":
            continue
        own = [subject for each in there if each["authorized_user"] == user for subject in each["subscriptions_list"]]
        for pattern in permissions(user, pool, "mcpfleet")["subscribe"]["allow"]:
            if user in _users(fleet) and pattern not in AWAITED:
                assert any(covers(pattern, subject) or _same_edge(pattern, subject) for subject in own), (user, pattern)
    for running in fleet.processes.values():
        figures = (await running.get("/metrics")).text
        assert re.search(r"^mcpfleet_bus_refusals_total\{.*\} 0", figures, re.MULTILINE), running.name
        assert re.search(r"^mcpfleet_bus_link_up\{.*\} 1", figures, re.MULTILINE), running.name


async def _exports(fleet: LocalFleet) -> None:
    """These processes export every metric that dashboards, alerts and rules read."""
    there = set(figures.recorded())
    for running in fleet.processes.values():
        kinds = figures.types((await running.get("/metrics")).text)
        there |= {name for each, kind in kinds.items() for name in figures.series(each, kind)}
    read = {name for query in figures.queries() for name in query.names()}
    assert read <= there


async def _shows(fleet: LocalFleet) -> None:
    """Where the overlay has the console on, any of its processes but workers shows all of them."""
    edge = manifests.environment(manifests.fleet(fleet.overlay)["edge"], manifests.config_maps(fleet.overlay))
    if edge.get("MCPFLEET_CONSOLE") != "true":
        assert (await fleet.processes["edge"].get(PATH)).status_code == 404
        return
    for name in ("edge", "catalog"):
        assert (await fleet.processes[name].get(PATH)).status_code == 200
        async with looking(f"{fleet.processes[name].admin}{PATH}") as pictures:
            seen = await pictures.until(lambda each: each["totals"]["processes"] == len(fleet.processes))
        assert {node["state"] for node in seen["nodes"]} == {"ready"}


async def _finishes(tasks: TaskClient, stock: str) -> None:
    """A task that ran while the NATS server died asks its client, and ends."""
    await tasks.until(stock, "input_required")
    await tasks.update(stock, look={"with_titles": True})
    ended = await tasks.until(stock)
    assert (ended["status"], ended["result"]["isError"]) == ("completed", False), ended
    assert "words" in str(ended["result"]["structuredContent"])


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


async def _loses_a_server(fleet: LocalFleet, http: httpx2.AsyncClient) -> None:
    """The NATS server of the edge dies during a call, which ends as if nothing had been; so do those that follow."""
    answers: list[httpx2.Response] = []

    async def report() -> None:
        answers.append(await call(http, "report"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(report)
        await anyio.sleep(1)  # a part of the seven seconds that the call takes
        [port] = {each["port"] for each in await connections(fleet) if each["authorized_user"] == "edge"}
        await fleet.servers[fleet.monitors.index(port)].kill()
    answers.append(await call(http, "search", query="austen"))
    assert [answer.json()["result"]["isError"] for answer in answers] == [False, False]


async def _drains(fleet: LocalFleet) -> None:
    """Edges first; each ends by itself within the time that its pod has."""
    order = sorted(fleet.processes.values(), key=lambda running: running.name != "edge")
    for running in order:
        workload = manifests.fleet(fleet.overlay)[running.name]
        running.child.signal(signal.SIGTERM)
        with anyio.fail_after((pod(workload) or {})["terminationGracePeriodSeconds"]):
            assert await running.child.listen() == 0, fleet.log(running.name)
