"""`mcpfleet call`: calls a tool, for people with a progress bar, or for programs as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
from mcp import Client
from mcp_types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from mcpfleet.cli.endpoint_client import EndpointClient
from mcpfleet.cli.options import read_arguments
from mcpfleet.wire.protocol import IDEMPOTENCY_KEY


async def call_tool(
    endpoint: EndpointClient,
    tool: str,
    arguments: dict[str, Any],
    *,
    timeout: float,
    as_json: bool,
    key: str | None = None,
) -> int:
    """Call a tool and print its result; returns the exit code: 0 for a result, 1 for a failure.

    Args:
        endpoint: the server's.
        tool: the tool's name.
        arguments: for the tool.
        timeout: seconds to wait for each answer.
        as_json: print the whole result.
        key: the call's idempotency key, for a tool that takes one outside its arguments.
    """
    try:
        async with endpoint.open(timeout) as client:
            result = await _call(client, tool, arguments, key, quiet=as_json or not sys.stderr.isatty())
    except Exception as error:
        why = endpoint.reason(error)
        if "extensions (-32021)" in why:
            why += ": each call of this tool is a task; use `mcpfleet tasks start`"
        return complain(why)
    return show_result(result, as_json=as_json)


async def _call(
    client: Client, tool: str, arguments: dict[str, Any], key: str | None, *, quiet: bool
) -> CallToolResult:
    meta: Any = None if key is None else {IDEMPOTENCY_KEY: key}
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task(tool, total=None)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            bar.update(task, completed=progress, total=total, description=message or tool)

        return await client.call_tool(tool, arguments, progress_callback=report, meta=meta)


def show_result(result: CallToolResult, *, as_json: bool) -> int:
    """Print a result: its structured content, and the blocks that add to it; returns the exit code."""
    if as_json:
        print(result.model_dump_json(by_alias=True, exclude_none=True))  # noqa: T201
        return 1 if result.is_error else 0
    console = Console(stderr=bool(result.is_error), highlight=False)
    style = "red" if result.is_error else None
    if result.structured_content is not None and not result.is_error:
        console.print_json(data=result.structured_content)
    for block in _beside(result):
        console.print(_show(block), style=style, markup=False, soft_wrap=True)
    return 1 if result.is_error else 0


def _beside(result: CallToolResult) -> list[ContentBlock]:
    """The blocks that do not only repeat the structured content."""
    if result.structured_content is None or result.is_error:
        return list(result.content)
    return [block for block in result.content if not _says(block, result.structured_content)]


def _says(block: ContentBlock, structured: object) -> bool:
    if not isinstance(block, TextContent):
        return False
    try:
        value = json.loads(block.text)
    except ValueError:
        value = block.text
    return structured in (value, block.text, {"result": value}, {"result": block.text})


def _show(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return f"[{block.type} of type {block.mime_type}, {len(block.data) * 3 // 4} bytes]"
        case ResourceLink():
            return f"[resource {block.uri}]"
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return resource.text
        case _:
            return f"[resource {block.resource.uri}]"


def complain(what: object) -> int:
    """Print on standard error why there is no result; returns the exit code."""
    Console(stderr=True, highlight=False).print(str(what), style="red", markup=False, soft_wrap=True)
    return 1


def run_call(
    endpoint: EndpointClient, tool: str, pairs: list[str], *, timeout: float, as_json: bool, key: str | None = None
) -> int:
    """Read the arguments and make the call; see `call_tool`."""
    try:
        arguments = read_arguments(pairs)
    except ValueError as error:
        return complain(error)
    return anyio.run(lambda: call_tool(endpoint, tool, arguments, timeout=timeout, as_json=as_json, key=key))
