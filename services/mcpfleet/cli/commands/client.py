"""The commands of a client: they show what an endpoint offers, use it, and show what changes there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mcpfleet.cli.options import Answers, Arguments, Json, Key, Out, Timeout, Token, Tool, Url, check_uris

if TYPE_CHECKING:
    from mcpfleet.cli.call import Caller

_KNOWN = "name=value for each argument."


def call(  # noqa: PLR0917  # the command line's options are its parameters
    url: Url,
    tool: Tool,
    arguments: Arguments = None,
    answer: Answers = None,
    as_json: Json = False,
    out: Out = None,
    timeout: Timeout = 300.0,
    key: Key = None,
    token: Token = None,
) -> None:
    """Call a tool: show a bar while it reports progress, ask here what it asks, and print its result.

    A wrong argument is told before the call. Without a terminal, --answer answers what the tool asks.

    Exit codes: 0 for a result, 1 for an error of the tool or the server, 2 for a wrong argument or a missing answer.
    """
    from mcpfleet.cli.call import run_call  # noqa: PLC0415

    raise typer.Exit(run_call(_caller(url, token, timeout, answer, as_json, out), tool, arguments or [], key))


def list_(
    url: Url,
    name: Annotated[str | None, typer.Argument(help="Only this tool, prompt or resource, in full.")] = None,
    as_json: Json = False,
    timeout: Timeout = 30.0,
    token: Token = None,
) -> None:
    """Show an endpoint's tools, resources, templates and prompts, or one of them in full."""
    from mcpfleet.cli.endpoint_client import EndpointClient  # noqa: PLC0415
    from mcpfleet.cli.listing import run_list  # noqa: PLC0415

    raise typer.Exit(run_list(EndpointClient(url, token), name, timeout=timeout, as_json=as_json))


def read(  # noqa: PLR0917
    url: Url,
    uri: Annotated[str, typer.Argument(help="The resource's URI.")],
    answer: Answers = None,
    as_json: Json = False,
    out: Out = None,
    timeout: Timeout = 30.0,
    token: Token = None,
) -> None:
    """Read a resource, and print its contents."""
    from mcpfleet.cli.call import run_read  # noqa: PLC0415

    raise typer.Exit(run_read(_caller(url, token, timeout, answer, as_json, out), uri))


def prompt(  # noqa: PLR0917
    url: Url,
    name: Annotated[str, typer.Argument(help="The prompt's name.")],
    arguments: Annotated[list[str] | None, typer.Argument(help=_KNOWN, show_default=False)] = None,
    answer: Answers = None,
    as_json: Json = False,
    out: Out = None,
    timeout: Timeout = 30.0,
    token: Token = None,
) -> None:
    """Get a prompt, and print its messages."""
    from mcpfleet.cli.call import run_prompt  # noqa: PLC0415

    raise typer.Exit(run_prompt(_caller(url, token, timeout, answer, as_json, out), name, arguments or []))


def complete(  # noqa: PLR0917
    url: Url,
    kind: Annotated[str, typer.Argument(help="prompt or template.", metavar="prompt|template")],
    name: Annotated[str, typer.Argument(help="The prompt's name, or the template's URI.")],
    argument: Annotated[str, typer.Argument(help="The argument, and what is typed of it: ARG=typed.")],
    known: Annotated[
        list[str] | None, typer.Argument(help="name=value for arguments that are known.", show_default=False)
    ] = None,
    as_json: Json = False,
    timeout: Timeout = 30.0,
    token: Token = None,
) -> None:
    """Show what a server proposes for an argument of a prompt or a template, a value on a line."""
    from mcpfleet.cli.call import run_complete  # noqa: PLC0415

    raise typer.Exit(
        run_complete(_caller(url, token, timeout, None, as_json, None), kind, name, [argument, *(known or [])])
    )


def watch(  # noqa: PLR0917
    url: Url,
    uris: Annotated[list[str] | None, typer.Argument(help="The URIs of resources to watch.")] = None,
    tools: Annotated[bool, typer.Option("--tools", help="Watch the list of tools.")] = False,
    prompts: Annotated[bool, typer.Option("--prompts", help="Watch the list of prompts.")] = False,
    resources: Annotated[bool, typer.Option("--resources", help="Watch the list of resources.")] = False,
    as_json: Json = False,
    token: Token = None,
) -> None:
    """Show changes as they happen, until ^C. Without a choice, all three lists are watched."""
    from mcpfleet.cli.endpoint_client import EndpointClient  # noqa: PLC0415
    from mcpfleet.cli.watch import WatchSelection, run_watch  # noqa: PLC0415

    check_uris(uris or [])
    nothing = not (uris or tools or prompts or resources)
    selection = WatchSelection(
        tools=tools or nothing, prompts=prompts or nothing, resources=resources or nothing, uris=uris or ()
    )
    raise typer.Exit(run_watch(EndpointClient(url, token), selection, as_json=as_json))


def _caller(  # noqa: PLR0917
    url: Url, token: Token, timeout: Timeout, answers: Answers, as_json: Json, out: Out
) -> Caller:
    from mcpfleet.cli.call import Caller  # noqa: PLC0415
    from mcpfleet.cli.endpoint_client import EndpointClient  # noqa: PLC0415
    from mcpfleet.cli.results import Output  # noqa: PLC0415

    return Caller(EndpointClient(url, token), timeout, Output(as_json=as_json, file=out), answers or ())
