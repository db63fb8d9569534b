"""Options and arguments that several commands share: an endpoint, a tool, arguments, answers, token and format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mcpfleet.cli.known_names import complete_argument, complete_tool, complete_url
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.names import TOKEN_VARIABLE


def _tools(context: typer.Context, incomplete: str) -> list[str]:
    return complete_tool(context.params.get("url"), incomplete)


def _arguments(context: typer.Context, incomplete: str) -> list[str]:
    given = context.params.get("arguments") or ()
    return complete_argument(context.params.get("url"), context.params.get("tool"), given, incomplete)


Target = Annotated[
    str,
    typer.Argument(
        help="The application: path/to/app.py or module:attribute; or one MCP server of a file: fleet.toml:NAME."
    ),
]
Url = Annotated[
    str, typer.Argument(help="An endpoint, for example http://127.0.0.1:8000/mcp.", autocompletion=complete_url)
]
Tool = Annotated[str, typer.Argument(help="The tool's name.", autocompletion=_tools)]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        help="name=value, read by the schema: texts as they are, other values as JSON; a list may stand several times. "
        "@FILE is a file's content, as Base64 where bytes are wanted; @@ begins a text with @.",
        show_default=False,
        autocompletion=_arguments,
    ),
]
Answers = Annotated[
    list[str] | None,
    typer.Option(
        "--answer",
        help="FIELD=VALUE answers the fields of that name in what the server asks, QUESTION.FIELD=VALUE those of one "
        "question, QUESTION=accept|decline|cancel a whole question, and *=… every question. May be repeated.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Save the images, audio and blobs of the answer here; without such, all of it."),
]
Key = Annotated[str | None, typer.Option(help="An idempotency key, for a tool that takes one outside its arguments.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for each answer.")]
Token = Annotated[
    str | None,
    typer.Option(
        envvar=TOKEN_VARIABLE,
        show_default=False,
        metavar="@FILE",
        help="The file of the caller's token, or the token itself, which other users then see in the command line.",
    ),
]


def check_uris(uris: Sequence[str]) -> None:
    """Refuse URIs that no resource of a fleet can have; raises ConfigurationError."""
    from mcpfleet.contracts.hints import BadUri, check_published  # noqa: PLC0415

    try:
        for uri in uris:
            check_published(uri)
    except BadUri as error:
        raise ConfigurationError(str(error)) from None
