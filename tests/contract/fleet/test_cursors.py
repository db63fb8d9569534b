"""Cursors of lists: bound to the list as it was, small, and good on every edge. And lists that run code."""

from __future__ import annotations

from typing import Any

import anyio
import httpx2
import pytest

from mcpfleet.app import App, Context, Page, Resource
from mcpfleet.testing.local import LocalFleet
from tests.kit.waiting import pause, until
from tests.unit.edge.asgi import request

LONG = "test://" + "a" * 2_000
PAGES = {"MCPFLEET_PAGE_SIZE": "1"}


async def asked(
    http: httpx2.AsyncClient, method: str, params: dict[str, Any], version: str = "2026-07-28", name: str | None = None
) -> Any:
    """The response to a request, and before it the notifications."""
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": version, "mcp-method": method}
    if version == "2026-07-28":
        message = request(method, params, meta={"progressToken": "p", **params.get("_meta", {})})
        headers |= {} if name is None else {"mcp-name": name}
    else:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    response = await http.post("/mcp", json=message, headers=headers, timeout=30)
    if response.headers["content-type"] == "application/json":
        return [response.json()], response
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [httpx2.Response(200, text=line).json() for line in lines], response


async def result(http: httpx2.AsyncClient, method: str, **params: Any) -> Any:
    messages, _ = await asked(http, method, params)
    return messages[-1]["result"]


def listing() -> App:
    app = App("library", version="1.0.0")
    for uri in (LONG, "test://b", "test://c"):
        app.resource(uri, name=uri[-3:])(lambda: "text")

    @app.tool()
    async def one() -> str:
        """One."""
        return "1"

    @app.tool()
    async def two() -> str:
        """Two."""
        return "2"

    return app


@pytest.mark.rule("X64", "N21")
async def test_a_cursor_is_small_and_good_on_every_edge_while_its_list_is_the_same() -> None:
    app = listing()
    async with LocalFleet(app, edges=2, environment=PAGES) as fleet, fleet.http(0) as here, fleet.http(1) as there:
        first = await result(here, "resources/list")
        assert len(first["nextCursor"]) <= 2_048
        second = await result(there, "resources/list", cursor=first["nextCursor"])
        assert [each["uri"] for each in first["resources"] + second["resources"]] == [LONG, "test://b"]

        async def error(method: str, cursor: str, version: str = "2026-07-28") -> int:
            messages, _ = await asked(here, method, {"cursor": cursor}, version)
            code: int = messages[-1].get("error", {}).get("code", 0)
            return code

        tools = (await result(here, "tools/list"))["nextCursor"]
        assert await error("tools/list", tools, "2025-11-25") == -32602, "it is of another revision"
        assert await error("resources/list", tools) == -32602, "it is of another list"
        assert await error("tools/list", "A" * 2_049) == -32602

        app.remove("resource", "test://c")
        await until_async(lambda: error("resources/list", first["nextCursor"]), -32602)
        assert await error("tools/list", tools) == 0, "the tools are what they were"


async def until_async(ask: Any, wanted: Any) -> None:
    """The hint of the change takes a while; each request asks again."""
    with anyio.fail_after(10):
        while await ask() != wanted:
            await pause()


@pytest.mark.rule("X64")
async def test_a_listers_own_cursor_fits_inside_and_a_longer_one_is_the_listers_mistake() -> None:
    app = App("library", version="1.0.0")
    own = 'ö"' * 256  # 1,024 bytes as JSON

    @app.resources()
    async def shelves(cursor: str | None = None) -> Page:
        """List page by page."""
        nexts = {None: own, own: own + "x"}
        return Page([Resource(uri="test://1", name="1")], nexts[cursor])

    async with LocalFleet(app) as fleet, fleet.http() as http:
        first = await result(http, "resources/list")
        assert len(first["nextCursor"]) <= 2_048
        messages, _ = await asked(http, "resources/list", {"cursor": first["nextCursor"]})
        assert messages[-1]["error"]["code"] == -32603


def working(started: list[str], release: anyio.Event) -> App:
    app = App("library", version="1.0.0")

    @app.resources()
    async def shelf(ctx: Context) -> list[Resource]:
        """List slowly."""
        await ctx.progress(1, 2, "looking")
        started.append("shelf")
        await until(release.is_set, within=20)
        return [Resource(uri="test://1", name="1")]

    @app.prompt()
    async def greet(city: str) -> str:
        """Greet."""
        return city

    @app.completion(greet, "city")
    async def cities(value: str, ctx: Context) -> list[str]:
        await ctx.progress(1, 2, "looking")
        started.append("cities")
        await until(release.is_set, within=20)
        return [f"{value}aris"]

    return app


COMPLETING = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "city", "value": "P"}}


@pytest.mark.rule("X63")
@pytest.mark.parametrize(("method", "params"), [("resources/list", {}), ("completion/complete", COMPLETING)])
async def test_a_list_and_a_completion_report_progress_and_keep_quiet_connections(
    method: str, params: dict[str, Any]
) -> None:
    started: list[str] = []
    release = anyio.Event()
    environment = {"MCPFLEET_SILENT_AFTER": "0.2", "MCPFLEET_KEEPALIVE": "0.2"}
    found: list[Any] = []
    made = LocalFleet(working(started, release), environment=environment)
    async with made as fleet, fleet.http() as http, anyio.create_task_group() as tasks:

        async def ask() -> None:
            found.append(await asked(http, method, params))

        tasks.start_soon(ask)
        await until(lambda: started)
        await anyio.sleep(0.5)  # comments come by time alone
        release.set()
    messages, response = found[0]
    assert [each.get("method") for each in messages] == ["notifications/progress", None]
    assert messages[0]["params"] == {"progressToken": "p", "progress": 1, "total": 2, "message": "looking"}
    assert messages[1]["result"]["resultType"] == "complete"
    assert ": keepalive" in response.text


@pytest.mark.rule("X63")
async def test_of_several_listers_the_number_that_have_ended_is_told() -> None:
    app = App("library", version="1.0.0")

    async def shelf(ctx: Context) -> list[Resource]:
        """List."""
        await ctx.progress(0.5)
        return [Resource(uri="test://1", name="1")]

    for name in ("one", "two"):
        app.resources(name)(shelf)

    async with LocalFleet(app) as fleet, fleet.http() as http:
        first, _ = await asked(http, "resources/list", {})
        second, _ = await asked(http, "resources/list", {"cursor": first[-1]["result"]["nextCursor"]})
    told = [(each["params"]["progress"], each["params"]["total"]) for each in (first[0], second[0])]
    assert told == [(1, 2), (2, 2)]
    assert [len(first), len(second)] == [2, 2], "a lister's own progress would be another's for the client"
    assert "nextCursor" not in second[-1]["result"]
