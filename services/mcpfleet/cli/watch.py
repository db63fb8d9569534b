"""`mcpfleet watch`: shows a listen stream, and reopens it as a client should: listen first, then read again."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
from mcp import Client
from mcp.client.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Subscription,
    SubscriptionLost,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types import BlobResourceContents

from mcpfleet.cli.endpoint_client import EndpointClient
from mcpfleet.cli.results import complain, say
from mcpfleet.process.errors import leaves
from mcpfleet.process.retry import pauses

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 10.0
_READ_WITHIN: Final = 30.0
_LONGEST_LINE: Final = 80


@dataclass(frozen=True)
class WatchSelection:
    """The lists and resources to watch."""

    tools: bool = False
    prompts: bool = False
    resources: bool = False
    uris: Sequence[str] = ()


def run_watch(endpoint: EndpointClient, selection: WatchSelection, *, as_json: bool = False) -> int:
    """Watch until ^C; see `Watch.run`."""
    try:
        anyio.run(Watch(endpoint, selection, as_json=as_json).run)
    except KeyboardInterrupt:
        return 0
    return 1


class Watch:
    """Shows what changes at an endpoint."""

    def __init__(self, endpoint: EndpointClient, selection: WatchSelection, *, as_json: bool = False) -> None:
        self._endpoint = endpoint
        self._selection = selection
        self._as_json = as_json
        self._heard = False
        """Whether a stream was ever open."""
        self._is_open = False
        """Whether the last attempt opened one."""

    async def run(self) -> None:
        """Listen, and listen again whenever a stream ends.

        Returns where another attempt would fail too: the server refuses, or offers nothing of the selection, or never
        answered.
        """
        waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            began = time.monotonic()
            try:
                if not await self._listen():
                    return
                self._say("the server ended the stream; listening again", "bright_black")
            except Exception as error:
                if not self._heard or (self._endpoint.is_shut and not self._is_open):
                    complain(self._reason(error))
                    return
                self._say(f"lost: {self._reason(error)}; trying again", "yellow")
            if time.monotonic() - began > _LONGEST_PAUSE:
                waits = pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
            # Random, so that not all clients come back at once.
            await anyio.sleep(next(waits) * random.uniform(0.5, 1))  # noqa: S311

    async def _listen(self) -> bool:
        """Show one stream to its end; false where the server honours nothing of the selection."""
        selection = self._selection
        self._is_open = False
        async with (
            self._endpoint.open(_READ_WITHIN) as client,
            client.listen(
                tools_list_changed=selection.tools,
                prompts_list_changed=selection.prompts,
                resources_list_changed=selection.resources,
                resource_subscriptions=selection.uris,
            ) as stream,
        ):
            self._heard = self._is_open = True
            honoured = stream.honored.model_dump(by_alias=True, exclude_none=True)
            if not honoured:
                self._say(f"{self._endpoint.url} offers none of these to watch", "red")
                return False
            # Read now to see changes from before the stream was open; it tells of later ones.
            await self._read_all(client, stream)
            async for event in stream:
                await self._show(client, event)
        return True

    async def _read_all(self, client: Client, stream: Subscription) -> None:
        honoured = stream.honored
        lists = (
            (honoured.tools_list_changed, ToolsListChanged()),
            (honoured.prompts_list_changed, PromptsListChanged()),
            (honoured.resources_list_changed, ResourcesListChanged()),
        )
        for is_watched, event in lists:
            if is_watched:
                await self._show(client, event)
        for uri in honoured.resource_subscriptions or ():
            await self._show(client, ResourceUpdated(uri))

    async def _show(self, client: Client, event: object) -> None:
        """Read again what changed, and show it on a line."""
        what, read = self._reading(client, event)
        try:
            found = await read()
        except MCPError as error:
            found = f"{error} ({error.error.code})"
        if self._as_json:
            say(json.dumps({"at": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "changed": what, "now": found}))
        else:
            self._say(f"{what}: {found}")

    def _reading(self, client: Client, event: object) -> tuple[str, Callable[[], Awaitable[str]]]:
        match event:
            case ToolsListChanged():
                return "tools", lambda: _tools(client)
            case PromptsListChanged():
                return "prompts", lambda: _prompts(client)
            case ResourceUpdated(uri=uri):
                return uri, lambda: _resource(client, uri)
            case _:
                return "resources", lambda: _resources(client)

    def _reason(self, error: BaseException) -> str:
        lost = any(isinstance(leaf, SubscriptionLost) for leaf in leaves(error))
        return "the stream was cut off" if lost else self._endpoint.reason(error)

    def _say(self, sentence: str, colour: str | None = None) -> None:
        # JSON has the changes alone; what is said of the stream is for people.
        say(f"{time.strftime('%H:%M:%S')}  {sentence}", err=self._as_json, colour=colour)


async def _tools(client: Client) -> str:
    return _names([tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools])


async def _prompts(client: Client) -> str:
    return _names([prompt.name for prompt in (await client.list_prompts(cache_mode="refresh")).prompts])


async def _resources(client: Client) -> str:
    return _names([resource.uri for resource in (await client.list_resources(cache_mode="refresh")).resources])


async def _resource(client: Client, uri: str) -> str:
    contents = (await client.read_resource(uri, cache_mode="refresh")).contents
    if len(contents) != 1:
        return f"{len(contents)} parts"
    [content] = contents
    if isinstance(content, BlobResourceContents):
        return f"{len(content.blob) * 3 // 4} bytes of {content.mime_type or 'something'}"
    first, _, rest = content.text.partition("\n")
    cut = first[:_LONGEST_LINE]
    return f"{cut} … ({len(content.text)} characters)" if rest or len(cut) < len(first) else cut


def _names(names: list[str]) -> str:
    return f"{len(names)}: {', '.join(names)}" if names else "none"
