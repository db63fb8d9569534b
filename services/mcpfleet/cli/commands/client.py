"""The commands of a client: they call an endpoint's tools, and show what it offers and what changes there."""

from __future__ import annotations

from typing import Annotated

import typer

from mcpfleet.cli.options import Arguments, Key, Timeout, Token, Url, check_uris


def call(  # noqa: PLR0917
    url: Url,
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    arguments: Arguments = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    timeout: Timeout = 300.0,
    key: Key = None,
    token: Token = None,
) -> None:
    """Call a tool: show a bar while it reports progress, then its result."""
    from mcpfleet.cli.call import run_call  # noqa: PLC0415
    from mcpfleet.cli.endpoint_client import EndpointClient  # noqa: PLC0415

    raise typer.Exit(
        run_call(EndpointClient(url, token), tool, arguments or [], timeout=timeout, as_json=as_json, key=key)
    )


def list_(
    url: Url,
    timeout: Timeout = 30.0,
    token: Token = None,
) -> None:
    """Show an endpoint's tools, resources, templates and prompts, with their descriptions."""
    from mcpfleet.cli.endpoint_client import EndpointClient  # noqa: PLC0415
    from mcpfleet.cli.listing import run_list  # noqa: PLC0415

    raise typer.Exit(run_list(EndpointClient(url, token), timeout=timeout))


def watch(  # noqa: PLR0917
    url: Url,
    uris: Annotated[list[str] | None, typer.Argument(help="The URIs of resources to watch.")] = None,
    tools: Annotated[bool, typer.Option("--tools", help="Watch the list of tools.")] = False,
    prompts: Annotated[bool, typer.Option("--prompts", help="Watch the list of prompts.")] = False,
    resources: Annotated[bool, typer.Option("--resources", help="Watch the list of resources.")] = False,
    token: Token = None,
) -> None:
    """Show changes as they happen, until ^C. Without a choice, all three lists are watched."""
    check_uris(uris or [])
    from mcpfleet.cli.endpoint_client import EndpointClient  # noqa: PLC0415
    from mcpfleet.cli.watch import WatchSelection, run_watch  # noqa: PLC0415

    nothing = not (uris or tools or prompts or resources)
    selection = WatchSelection(
        tools=tools or nothing, prompts=prompts or nothing, resources=resources or nothing, uris=uris or ()
    )
    raise typer.Exit(run_watch(EndpointClient(url, token), selection))
