"""Servers of official SDKs over HTTP through a fleet: clients see what the servers say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mcpfleet.sources.source import Source, Url
from tests.contract.hosting.hosting_harness import hosted_fleet
from tests.contract.hosting.test_published_servers import npm
from tests.kit.ports import free_port
from tests.kit.waiting import pause

PYTHON: Final = """
import sys
from object_servers import high
high.run("streamable-http", port=int(sys.argv[1]), stateless_http=False)
"""


def command(kind: str, port: int) -> tuple[list[str], str, dict[str, Any]]:
    """The command of a server, and a call of it."""
    if kind == "everything":
        return [*npm("server-everything"), "streamableHttp"], "get-sum", {"a": 1, "b": 2}
    return [sys.executable, "-c", PYTHON, str(port)], "add", {"left": 1, "right": 2}


@asynccontextmanager
async def serving(words: Sequence[str], port: int) -> AsyncIterator[str]:
    """Run a server, and yield its URL once it takes connections."""
    env = {**os.environ, "PORT": str(port), "PYTHONPATH": str(Path(__file__).parent)}
    quiet = subprocess.DEVNULL
    process = await anyio.open_process(words, env=env, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        with anyio.fail_after(60):
            while True:
                try:
                    await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
                    break
                except OSError:
                    await pause()
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()
        await process.aclose()


async def seen_by(client: Client, tool: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
    """What a client sees of a server: its tools, and the result of a call."""
    tools = sorted((each.model_dump() for each in (await client.list_tools()).tools), key=lambda each: each["name"])
    return tools, (await client.call_tool(tool, arguments)).content


@pytest.mark.rule("B1", "B2")
@pytest.mark.parametrize("kind", ["everything", "python"])
async def test_clients_see_the_tools_and_results_of_the_server(kind: str) -> None:
    port = free_port()
    words, tool, arguments = command(kind, port)
    async with serving(words, port) as url:
        async with httpx2.AsyncClient() as http, Client(streamable_http_client(url, http_client=http)) as client:
            direct = await seen_by(client, tool, arguments)
        source = Source(name="there", way=Url(url=url), isolation="shared")
        async with hosted_fleet(source) as fleet, fleet.client() as client:
            tools, content = await seen_by(client, tool, arguments)
    demand_tasks = [each for each in direct[0] if (each["execution"] or {}).get("task_support") == "required"]
    assert tools == [each for each in direct[0] if each not in demand_tasks]
    assert content == direct[1]
