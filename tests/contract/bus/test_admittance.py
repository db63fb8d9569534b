"""The users that a NATS server lets in, and the servers that a process refuses to use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import SecretStr

from mcpfleet.bus.bus import Bus
from mcpfleet.process.settings import ProcessSettings
from tests.contract.bus.fabric import NatsFabric, heard, living, running
from tests.kit.waiting import until


@pytest.fixture
async def nats(settings: ProcessSettings, tmp_path: Path) -> AsyncIterator[NatsFabric]:
    """A real server: the in-memory switch refuses nobody."""
    made = NatsFabric(tmp_path, settings)
    async with living(made):
        yield made


async def is_up(bus: Bus) -> None:
    with anyio.fail_after(5):
        await bus.wait_up()


async def complaint(fabric: NatsFabric, edge: Bus) -> Any:
    async with running(edge):
        await until(lambda: fabric.lines("waiting for NATS"))
        assert not edge.is_up
    return fabric.lines("waiting for NATS")[0]


async def test_a_wrong_password_is_told_with_its_setting(nats: NatsFabric) -> None:
    edge = nats.stranger("edge", nats_password=SecretStr("wrong"))
    line = await complaint(nats, edge)
    assert line["setting"] == "MCPFLEET_NATS_USER"
    assert "wrong" not in str(line)


async def test_an_unknown_user_is_told_with_its_setting(nats: NatsFabric) -> None:
    line = await complaint(nats, nats.stranger("nobody", nats_password=SecretStr("x")))
    assert line["setting"] == "MCPFLEET_NATS_USER"


async def test_a_server_that_others_reach_and_that_asks_for_no_credentials_is_refused(nats: NatsFabric) -> None:
    """Anyone could call tools through it."""
    async with nats.open_server() as url:
        line = await complaint(nats, nats.stranger("edge", nats_url=url))
    assert "MCPFLEET_ALLOW_OPEN_NATS" in line["error"]


async def test_such_a_server_is_used_where_the_operator_says_so(nats: NatsFabric) -> None:
    async with nats.open_server() as url:
        edge = nats.stranger("edge", nats_url=url, allow_open_nats=True)
        async with running(edge):
            await is_up(edge)
            await heard(edge)


async def test_an_open_server_on_loopback_is_used(nats: NatsFabric) -> None:
    async with nats.open_server() as url:
        edge = nats.stranger("edge", nats_url=url.replace("0.0.0.0", "127.0.0.1"))
        async with running(edge):
            await is_up(edge)
