"""The commands that connect desktop clients, which start their servers: `mcpfleet stdio` and `mcpfleet install`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from mcpfleet.cli.credentials import Credentials, Header
from mcpfleet.cli.install import ClientName
from mcpfleet.cli.install import install as write
from mcpfleet.cli.options import Token
from mcpfleet.cli.sources import chosen_target, words_of
from mcpfleet.process.errors import ConfigurationError

_URL: Final = re.compile(r"https?://[^/?#\s]+\S*")
_LIKE_A_URL: Final = re.compile(r"[\w.+-]+://.*|[\w.-]+:[0-9]+(/.*)?")

Where = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="URL | TARGET… | -- COMMAND…",
        help="An endpoint; or what `mcpfleet dev` takes: an application, files of MCP servers, or the command of one.",
        show_default=False,
    ),
]
Installed = Annotated[
    str,
    typer.Argument(
        metavar="URL|TARGET",
        help="An endpoint, an application (path/to/app.py or module:attribute), or MCP servers that exist (fleet.toml, "
        ".mcp.json, server.py:mcp).",
    ),
]


def stdio(  # noqa: PLR0917  # the command line's options are its parameters
    ctx: typer.Context,
    where: Where = None,
    token: Token = None,
    header: Header = None,
    workers: Annotated[int, typer.Option(help="The number of workers, for a TARGET.", min=1)] = 1,
    reload: Annotated[bool, typer.Option(help="Restart the workers when a Python file changes, for a TARGET.")] = False,
) -> None:
    """Serve an endpoint or an application on standard input and output, for clients that start their servers."""
    words = where or []
    is_url = len(words) == 1 and is_endpoint(words[0])
    target = "" if is_url else chosen_target(ctx, words)
    secrets = Credentials(token, header or []).headers
    from mcpfleet.cli.stdio.serve import serve_target, serve_url  # noqa: PLC0415

    if is_url:
        raise typer.Exit(serve_url(words[0], secrets))
    options = ["--workers", str(workers), "--reload" if reload else "--no-reload"]
    raise typer.Exit(serve_target([*options, *words_of(target)], secrets))


def install(
    client: Annotated[ClientName, typer.Argument(help="The client whose configuration gets the server.")],
    where: Installed,
    name: Annotated[str | None, typer.Option(help="The server's name in the client.", show_default=False)] = None,
    token: Annotated[str | None, typer.Option(metavar="@FILE", help="The file of the caller's token.")] = None,
    prints: Annotated[bool, typer.Option("--print", help="Print the configuration, and write nothing.")] = False,
) -> None:
    """Write an endpoint or an application into a desktop client's configuration."""
    is_endpoint(where)
    raise typer.Exit(write(client, where, name=name, token=token, prints=prints))


def is_endpoint(where: str) -> bool:
    """Return whether this is an endpoint's URL, and no target.

    Raises:
        ConfigurationError: it is neither.
    """
    if _URL.fullmatch(where):
        return True
    if _LIKE_A_URL.fullmatch(where):
        raise ConfigurationError(f"{where}: the URL of an endpoint begins with http:// or https://")
    path = where.partition(":")[0]
    if path.endswith(".py") and not Path(path).is_file():
        raise ConfigurationError(f"{path}: the file does not exist")
    return False
