"""A NATS with its users for services that are run, and the way to ask them as any of these users."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from pydantic import SecretStr

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.service import bus_of
from mcpfleet.cli.embedded_nats import EmbeddedNats
from mcpfleet.process.service import Process
from mcpfleet.process.settings import ProcessSettings

POOLS = ("library", "archive")


def password(user: str) -> str:
    """The credentials of a user of this NATS."""
    return f"secret of {user}"


@asynccontextmanager
async def nats_server(folder: Path, pools: Iterable[str] = ()) -> AsyncIterator[EmbeddedNats]:
    """Run NATS for the length of a block."""
    nats = EmbeddedNats(folder, pools, ProcessSettings(), password)
    await nats.start()
    try:
        yield nats
    finally:
        with anyio.CancelScope(shield=True):
            await nats.child.kill()


async def connect(start: Callable[..., Any], nats: EmbeddedNats, user: str) -> Bus:
    """Connect as a user, by a bus that is up."""
    settings = ProcessSettings(nats_url=nats.url, nats_password=SecretStr(password(user)))
    bus = bus_of(Process(user, settings), user)
    await start(bus.run)
    with anyio.fail_after(10):
        await bus.wait_up()
    return bus


def why_not_ready(process: Process[Any]) -> str:
    """The reasons that an operator reads while a service is not ready."""
    return " ".join(condition.why for condition in process.health.conditions.values())
