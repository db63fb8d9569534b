"""`mcpfleet list`: shows what an endpoint offers its caller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Final, TypeAlias

import anyio
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND
from rich.console import Console

from mcpfleet.cli.call import complain
from mcpfleet.cli.endpoint_client import EndpointClient

_MOST_PAGES: Final = 1000
"""Pages that are read of one list."""
_Page: TypeAlias = Callable[[str | None], Awaitable[tuple[Iterable[Any], str | None]]]
Listed: TypeAlias = dict[str, list[tuple[str, str]]]
"""For each kind: names or URIs, each with its description."""


def run_list(endpoint: EndpointClient, *, timeout: float) -> int:
    """List an endpoint; returns the exit code."""
    return anyio.run(_show, endpoint, timeout)


async def _show(endpoint: EndpointClient, timeout: float) -> int:
    try:
        async with endpoint.open(timeout) as client:
            listed = await listing(client)
    except Exception as error:
        return complain(endpoint.reason(error))
    console = Console(highlight=False)
    for line in lines(listed):
        console.print(line, markup=False, soft_wrap=True)
    return 0


async def listing(client: Client) -> Listed:
    """Read all lists of a server."""

    async def tools(cursor: str | None) -> tuple[Iterable[Any], str | None]:
        page = await client.list_tools(cursor=cursor)
        return page.tools, page.next_cursor

    async def resources(cursor: str | None) -> tuple[Iterable[Any], str | None]:
        page = await client.list_resources(cursor=cursor)
        return page.resources, page.next_cursor

    async def templates(cursor: str | None) -> tuple[Iterable[Any], str | None]:
        page = await client.list_resource_templates(cursor=cursor)
        return page.resource_templates, page.next_cursor

    async def prompts(cursor: str | None) -> tuple[Iterable[Any], str | None]:
        page = await client.list_prompts(cursor=cursor)
        return page.prompts, page.next_cursor

    return {
        "tools": [(each.name, each.description or "") async for each in _all(tools)],
        "resources": [(each.uri, each.description or each.name) async for each in _all(resources)],
        "templates": [(each.uri_template, each.description or each.name) async for each in _all(templates)],
        "prompts": [(each.name, each.description or "") async for each in _all(prompts)],
    }


async def _all(page: _Page) -> AsyncIterator[Any]:
    """Yield every entry of a list; a server without the method has none."""
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        try:
            entries, cursor = await page(cursor)
        except MCPError as error:
            if error.error.code != METHOD_NOT_FOUND:
                raise
            return
        for entry in entries:
            yield entry
        if cursor is None:
            return


def lines(listed: Listed) -> list[str]:
    """The lines to show: each kind that has entries, with the first line of each description."""
    shown = []
    for kind, entries in listed.items():
        if entries:
            width = max(len(name) for name, _ in entries)
            shown.append(f"{kind}:")
            shown += [f"  {name:{width}}  {(about.splitlines() or [''])[0]}".rstrip() for name, about in entries]
    return shown or ["the endpoint offers nothing"]
