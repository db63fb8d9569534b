"""Listen streams while one service, or the store, is killed alone and started again."""

from __future__ import annotations

import json

import anyio
import pytest

from mcpfleet.cli.operate import publish
from mcpfleet.testing.fleet import Fleet
from tests.contract.fleet.listener import ACK, UPDATED
from tests.fleet.test_streams import APP, BOOK
from tests.fleet.test_streams_in_trouble import held, status
from tests.kit.postgres import postgres_server
from tests.kit.waiting import until

TOKENS = [f"secret-{number}" for number in range(100)]
"""All of one subject. No process knows a token that was not used yet."""
STATIC = {
    "MCPFLEET_AUTHORIZATION": "static",
    "MCPFLEET_TOKENS": json.dumps(
        {"tokens": [{"token": token, "subject": "ann", "audience": "mcp"} for token in TOKENS]}
    ),
}
ALONE = {"subscriptions": 503, "authorization": 504, "catalog": 200}
"""The answer to a new stream while a service is away; edges keep what the catalog said."""


async def becomes(fleet: Fleet, expected: int) -> None:
    """Wait until both edges answer new streams so, each with a credential that nobody knows."""
    with anyio.fail_after(20):
        while {await status(url, TOKENS.pop()) for url in fleet.urls} != {expected}:  # noqa: ASYNC110  # no event of ours
            await anyio.sleep(0.1)


@pytest.mark.timeout(120)
async def test_no_service_that_dies_alone_ends_a_stream_or_refuses_new_ones_for_long() -> None:
    """S1, blueprint 6: what is open goes on by what its edge knows."""
    async with (
        Fleet(APP, edges=2, apart=True, environment=STATIC) as fleet,
        held(fleet, TOKENS.pop(), 5) as streams,
    ):
        for number, (service, answer) in enumerate(ALONE.items(), 1):
            await fleet.service(service).kill()
            await becomes(fleet, answer)
            assert await publish(fleet.nats_settings("operator"), "mcp", [BOOK]) == 0
            await until(lambda number=number: all(each.kinds() == [ACK] + [UPDATED] * number for each in streams))  # type: ignore[misc]  # mypy infers no lambda with a default
            await fleet.restart(fleet.service(service), drain=False)
            await becomes(fleet, 200)
        assert not any(stream.is_over for stream in streams)


@pytest.mark.timeout(120)
async def test_a_store_that_dies_ends_no_stream_or_refuses_new_ones_for_long() -> None:
    """A PostgreSQL that is killed with all services connected, and started again; nobody else is."""
    with postgres_server() as postgres:
        async with (
            postgres.database() as url,
            Fleet(APP, edges=2, environment={**STATIC, "MCPFLEET_STORE_URL": url}) as fleet,
            held(fleet, TOKENS.pop(), 5) as streams,
        ):
            await postgres.kill()
            await becomes(fleet, 503)
            assert await publish(fleet.nats_settings("operator"), "mcp", [BOOK]) == 0
            await until(lambda: all(each.kinds() == [ACK, UPDATED] for each in streams))
            await postgres.start()
            await becomes(fleet, 200)
            async with held(fleet, TOKENS.pop(), 2) as more:
                assert await publish(fleet.nats_settings("operator"), "mcp", [BOOK]) == 0
                await until(lambda: all(each.kinds() == [ACK, UPDATED, UPDATED] for each in streams))
                await until(lambda: all(each.kinds() == [ACK, UPDATED] for each in more))
