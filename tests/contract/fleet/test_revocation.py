"""A permission that ends while an edge hears nothing, and callers while authorization is away."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx2

from mcpfleet.bus.bus import Bus
from mcpfleet.contracts.authorization import AuthorizationClient, Revoke
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.telemetry.instruments import BusInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.app import ObservedApp
from tests.unit.edge.asgi import Post, request

TOKENS = [{"token": f"of-{name}", "subject": name, "audience": "mcp"} for name in ("ann", "bob")]
STATIC = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps({"tokens": TOKENS})}
FACTOR = 10


async def status(http: httpx2.AsyncClient, name: str) -> int:
    post = Post(request("tools/list"), {"authorization": f"Bearer of-{name}", "host": "localhost"})
    headers = {key.decode(): value.decode() for key, value in post.pairs()}
    return (await http.post("/mcp", content=post.body, headers=headers)).status_code


@asynccontextmanager
async def operator(fleet: LocalFleet) -> AsyncIterator[AuthorizationClient]:
    """The operator's request to authorization."""
    settings, process = ProcessSettings(), secrets.token_hex(8)
    connector = fleet.switch.connector("operator", settings, process=process)
    log = fleet.authorization.process.log
    instruments = BusInstruments(Metrics())
    bus = Bus(connector, settings, user="operator", process=process, instruments=instruments, log=log)
    async with anyio.create_task_group() as tasks:
        await tasks.start(bus.run)
        await bus.wait_up()
        yield AuthorizationClient(bus)
        tasks.cancel_scope.cancel()


async def becomes(http: httpx2.AsyncClient, name: str, expected: int) -> None:
    with anyio.fail_after(10):
        while await status(http, name) != expected:  # noqa: ASYNC110  # the edge has no event for it
            await anyio.sleep(0.02)


async def test_invariant_5_an_edge_that_was_cut_off_hears_who_was_revoked_once_it_is_back(
    observed: ObservedApp,
) -> None:
    environment = {**STATIC, "MCPFLEET_ADMISSION_LASTS": "3600"}
    async with (
        LocalFleet(observed.app, edges=2, factor=FACTOR, environment=environment) as fleet,
        operator(fleet) as asking,
        fleet.http(0) as reached,
        fleet.http(1) as unreached,
    ):
        for http in (reached, unreached):
            assert [await status(http, name) for name in ("ann", "bob")] == [200, 200]
        fleet.edges[1].cut()
        await asking.revoke(Revoke(kind="subject", name="ann", id=secrets.token_hex(16)))
        await becomes(reached, "ann", 401)
        fleet.edges[1].heal()
        await becomes(unreached, "ann", 401)
        for http in (reached, unreached):
            assert await status(http, "bob") == 200


async def test_callers_that_are_known_go_on_while_authorization_is_away_and_not_for_ever(observed: ObservedApp) -> None:
    async with LocalFleet(observed.app, factor=FACTOR, environment=STATIC) as fleet, fleet.http() as http:
        assert await status(http, "ann") == 200
        await fleet.authorization.kill()
        assert await status(http, "ann") == 200
        assert await status(http, "bob") == 504
        await becomes(http, "ann", 504)
