"""A fleet that is started before its NATS: each process waits, says so, and is not ready."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import httpx2
from mcp import Client

from mcpfleet.testing.fleet import Fleet
from tests.kit.proxy import TcpProxy, keep_proxied
from tests.kit.waiting import until

APP = Path(__file__).parents[1] / "fleet" / "app.py"
PROCESSES = ("edge 1", "services", "worker 1")


async def test_processes_wait_for_a_nats_that_is_not_there_yet() -> None:
    links: dict[str, TcpProxy] = {}
    unready: dict[str, httpx2.Response] = {}

    async def route(name: str, url: str) -> str:
        links[name] = await tasks.start(keep_proxied, url)
        links[name].cut()
        return links[name].url

    async def let_nats_come() -> None:
        await until(lambda: len(links) == len(PROCESSES))
        await until(lambda: all(waits(fleet, name) for name in PROCESSES))
        async with httpx2.AsyncClient() as client:
            for name in PROCESSES:
                unready[name] = await client.get(f"{admin(fleet, name)}/readyz")
        for link in links.values():
            link.heal()

    fleet = Fleet(APP, route=route)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(let_nats_come)
        async with fleet, Client(fleet.urls[0]) as client:
            assert (await client.call_tool("add", {"left": 2, "right": 2})).structured_content == 4
            assert all(child.is_running for child in (*fleet.edges, *fleet.workers))
        tasks.cancel_scope.cancel()
    assert [response.status_code for response in unready.values()] == [503] * len(PROCESSES)
    assert all("NATS" in response.text for response in unready.values()), unready


def lines(fleet: Fleet, process: str) -> list[dict[str, object]]:
    """Return the lines that one process has logged."""
    [text] = [part for part in fleet.logs().split("== ") if part.startswith(f"{process}\n")]
    return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


def waits(fleet: Fleet, process: str) -> bool:
    """Whether it has said that it waits for NATS, and which setting says where NATS is."""
    return any(
        line["event"] == "waiting for NATS" and line["setting"] == "MCPFLEET_NATS_URL" for line in lines(fleet, process)
    )


def admin(fleet: Fleet, process: str) -> object:
    """Where its admin port is."""
    return next(line["url"] for line in lines(fleet, process) if line["event"] == "admin port opened")
