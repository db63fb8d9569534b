"""Consoles for tests: where they are, and what their streams say."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import httpx2

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.service import bus_of
from mcpfleet.process.service import Process
from mcpfleet.testing.fleet import Fleet

ON: Final[Mapping[str, str]] = {"MCPFLEET_CONSOLE": "true", "MCPFLEET_TASKS_SWEEP": "0.1"}


def consoles(fleet: Fleet, service: str) -> list[str]:
    """Where a service's consoles are, as its processes have logged it."""
    lines = (json.loads(line) for line in fleet.logs().splitlines() if line.startswith("{"))
    return [line["url"] for line in lines if line["event"] == "console served" and line["service"] == service]


class Pictures:
    """The newest picture of a console's stream."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}
        self._came = anyio.Event()

    async def run(self, url: str) -> None:
        """Read a stream until cancelled, or until its process has ended."""
        with suppress(httpx2.TransportError):
            await self._read(url)

    async def _read(self, url: str) -> None:
        async with (
            httpx2.AsyncClient(timeout=None) as http,
            http.stream("GET", f"{url}/events") as answer,
        ):
            assert answer.headers["content-type"] == "text/event-stream"
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    self.last = json.loads(line.removeprefix("data: "))
                    self._came.set()
                    self._came = anyio.Event()

    async def until(self, holds: Callable[[dict[str, Any]], object], *, within: float = 20.0) -> dict[str, Any]:
        """Wait for a picture of which something holds."""
        with anyio.move_on_after(within):
            while not (self.last and holds(self.last)):
                await self._came.wait()
        assert self.last and holds(self.last), self.last  # noqa: PT018  # the picture says what is missing
        return self.last


@asynccontextmanager
async def looking(url: str) -> AsyncIterator[Pictures]:
    """Read a console for the length of a block."""
    pictures = Pictures()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pictures.run, url)
        yield pictures
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def bus_as(fleet: Fleet, user: str) -> AsyncIterator[Bus]:
    """A bus of a fleet as one of its users."""
    bus = bus_of(Process("test", fleet.nats_settings(user)), user)
    async with anyio.create_task_group() as tasks:
        await tasks.start(bus.run)
        with anyio.fail_after(10):
            await bus.wait_up()
        yield bus
        tasks.cancel_scope.cancel()
