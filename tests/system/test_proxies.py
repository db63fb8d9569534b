"""Clients call two edges through real proxies, each configured as docs/proxies.md says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from tests.kit.waiting import until
from tests.system.proxies import CADDY, NGINX, PROXIES, Front, Proxy, behind, comes
from tests.unit.edge.asgi import MODERN, request

APP = Path(__file__).with_name("app.py")
BOOK = "shelf://books/1"
IDLE = 2
"""Seconds of silence that a proxy allows in one test, instead of the page's 60."""
KEEPALIVE = 0.5
"""Seconds after which an edge comments a silent stream: less than a proxy's idle time, as by default."""
SILENT = {"MCPFLEET_KEEPALIVE": str(KEEPALIVE), "MCPFLEET_SILENT_AFTER": str(KEEPALIVE)}
LARGE = 6 * 1024 * 1024

every_proxy = pytest.mark.parametrize("proxy", PROXIES, ids=lambda proxy: proxy.name)
both_protocols = pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])


@asynccontextmanager
async def http_client(front: Front, *, http2: bool = False) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of HTTP that trusts the proxy and waits as long as the test does."""
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(verify=front.trust, http2=http2, http1=not http2, timeout=60, limits=limits) as http:
        yield http


@asynccontextmanager
async def official(front: Front, *, http2: bool = False, **options: Any) -> AsyncIterator[Client]:
    """The official client through a proxy."""
    async with (
        http_client(front, http2=http2) as http,
        Client(streamable_http_client(front.url, http_client=http), **options) as client,
    ):
        yield client


def post(name: str, /, **arguments: Any) -> dict[str, Any]:
    """A call, as httpx2 posts it."""
    body = request("tools/call", {"name": name, "arguments": arguments})
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": name,
    }
    return {"json": body, "headers": headers}


async def both_serve(found: Front) -> None:
    """Call until each edge has answered once: the proxy knows both by then."""
    async with http_client(found) as http:
        with anyio.fail_after(20):
            while not all(
                part.count('"audit"') for part in found.fleet.logs().split("== ") if part.startswith("edge ")
            ):
                assert (await http.post(found.url, **post("echo", text="on"))).status_code == 200


def text(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


@every_proxy
@both_protocols
async def test_progress_passes_while_the_call_runs(proxy: Proxy, tmp_path: Path, *, http2: bool) -> None:
    reports: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append(message)
        (tmp_path / "release").touch()  # the call ends only once its report came through

    async with (
        behind(proxy, APP, tmp_path) as found,
        official(found, http2=http2) as client,
    ):
        arguments = {"folder": str(tmp_path), "name": "one"}
        result = await client.call_tool("hold", arguments, progress_callback=on_progress)
    assert (text(result), reports) == ("released", ["holding"])


@every_proxy
async def test_a_silent_stream_outlives_the_idle_time(proxy: Proxy, tmp_path: Path) -> None:
    """Comments of the edge pass at their pace, and a change that follows them passes at once."""
    body = request("subscriptions/listen", {"notifications": {"resourceSubscriptions": [BOOK]}})
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": "subscriptions/listen",
    }
    async with (
        behind(proxy, APP, tmp_path, idle=IDLE, environment=SILENT) as found,
        http_client(found) as http,
        http.stream("POST", found.url, json=body, headers=headers) as stream,
    ):
        comments, heard = 0, []
        async for line in stream.aiter_lines():
            comments += line.startswith(":")
            if line.startswith("data: "):
                heard.append(json.loads(line.removeprefix("data: "))["method"])
            if comments * KEEPALIVE > 2 * IDLE and len(heard) == 1:
                comments = 0
                assert (await http.post(found.url, **post("touch", book=1))).status_code == 200
            if len(heard) == 2:
                break
    assert heard == ["notifications/subscriptions/acknowledged", "notifications/resources/updated"]


@every_proxy
@both_protocols
async def test_a_client_that_leaves_cancels_its_call(proxy: Proxy, tmp_path: Path, *, http2: bool) -> None:
    """P10: before anything of the answer came, as well as in the middle of a stream."""
    async with behind(proxy, APP, tmp_path) as found:
        for name, silently in (("silent", True), ("streaming", False)):
            async with http_client(found, http2=http2) as http, anyio.create_task_group() as tasks:
                call = post("hold", folder=str(tmp_path), name=name, silently=silently)
                tasks.start_soon(lambda call=call, http=http: http.post(found.url, **call))  # type: ignore[misc]  # mypy infers no lambda with a default
                await comes(tmp_path / name)
                tasks.cancel_scope.cancel()
            await comes(tmp_path / f"{name}.cancelled")


@every_proxy
async def test_bodies_of_megabytes_pass_both_ways(proxy: Proxy, tmp_path: Path) -> None:
    async with behind(proxy, APP, tmp_path) as found, http_client(found) as http:
        answer = await http.post(found.url, **post("echo", text="x" * LARGE))
    assert len(answer.json()["result"]["content"][0]["text"]) == LARGE


@every_proxy
async def test_a_dead_edge_costs_its_own_calls_alone_and_none_runs_twice(proxy: Proxy, tmp_path: Path) -> None:
    """Its calls get 502, since nothing of their answers had come; once the proxy knows, all go to the other edge."""
    statuses: dict[str, int] = {}

    async def call(http: httpx2.AsyncClient, url: str, name: str) -> None:
        posted = post("hold", folder=str(tmp_path), name=name, silently=True)
        statuses[name] = (await http.post(url, **posted)).status_code

    names = [f"call-{number}" for number in range(8)]
    async with behind(proxy, APP, tmp_path) as found, http_client(found) as http:
        await both_serve(found)
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(call, http, found.url, name)
            for name in names:
                await comes(tmp_path / name)
            await found.fleet.edges[0].kill()
            await until(lambda: statuses)
            (tmp_path / "release").touch()
        after: list[int] = []
        with anyio.fail_after(10):
            while after[-10:] != [200] * 10:
                after.append((await http.post(found.url, **post("echo", text="on"))).status_code)
    assert set(statuses.values()) == {200, 502}
    assert set(after) <= {200, 502}, "until the proxy knows, and nothing else"
    assert [(tmp_path / name).read_text() for name in names] == ["started\n"] * 8


@pytest.mark.parametrize("proxy", [NGINX, CADDY], ids=lambda proxy: proxy.name)
async def test_the_official_client_outlives_a_dead_edge(proxy: Proxy, tmp_path: Path) -> None:
    """It ends whole where its connection is cut, as HAProxy does on a kept one; a 502 is one failed call to it."""
    failed: list[int] = []

    async def call(client: Client, name: str) -> None:
        try:
            await client.call_tool("hold", {"folder": str(tmp_path), "name": name, "silently": True})
        except MCPError as error:
            failed.append(error.error.code)

    names = [f"call-{number}" for number in range(8)]
    async with behind(proxy, APP, tmp_path) as found, official(found) as client:
        await both_serve(found)
        await client.list_tools()  # or it lists after its first result, and loses that result if the list fails
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(call, client, name)
            for name in names:
                await comes(tmp_path / name)
            await found.fleet.edges[0].kill()
            await until(lambda: failed)
            (tmp_path / "release").touch()
        with anyio.fail_after(10):
            while True:
                try:
                    result = await client.call_tool("echo", {"text": "on"})
                except MCPError:  # until the proxy knows
                    continue
                break
    assert text(result) == "on"
    assert len(failed) < len(names), "the other edge's calls went on"


@every_proxy
async def test_an_edge_that_drains_costs_no_call(proxy: Proxy, tmp_path: Path) -> None:
    statuses: list[int] = []

    async def call(http: httpx2.AsyncClient, url: str, ended: anyio.Event) -> None:
        while not ended.is_set():
            statuses.append((await http.post(url, **post("echo", text="on"))).status_code)

    async with (
        behind(proxy, APP, tmp_path, environment={"MCPFLEET_LAME": "3"}) as found,
        http_client(found) as http,
        anyio.create_task_group() as tasks,
    ):
        ended = anyio.Event()
        for _ in range(4):
            tasks.start_soon(call, http, found.url, ended)
        await until(lambda: len(statuses) > 50)
        await found.fleet.edges[0].stop(within=20)
        reached = len(statuses)
        await until(lambda: len(statuses) > reached + 50)
        ended.set()
    assert set(statuses) == {200}


@every_proxy
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_a_session_of_2025_needs_no_affinity(proxy: Proxy, tmp_path: Path) -> None:
    """D11: its requests go to both edges, and its stream tells what changed."""
    told = anyio.Event()

    async def on_message(message: Any) -> None:
        if getattr(message, "method", None) == "notifications/resources/updated":
            told.set()

    async with (
        behind(proxy, APP, tmp_path) as found,
        official(found, mode="legacy", message_handler=on_message) as client,
    ):
        await client.subscribe_resource(BOOK)
        for _ in range(4):
            assert text(await client.call_tool("echo", {"text": "on"})) == "on"
        await client.call_tool("touch", {"book": 1})
        with anyio.fail_after(10):
            await told.wait()
