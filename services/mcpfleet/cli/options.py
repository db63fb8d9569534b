"""Options and arguments that several commands share: a tool's arguments, the caller's token, time, key and format."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, NoReturn

import typer

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.names import TOKEN_VARIABLE

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""A bearer token (RFC 6750, 2.1). Any other text is refused before a library could quote it in an error."""

Target = Annotated[str, typer.Argument(help="The application: path/to/app.py or module:attribute.")]
Url = Annotated[str, typer.Argument(help="An endpoint, for example http://127.0.0.1:8000/mcp.")]
Arguments = Annotated[
    list[str] | None, typer.Argument(help="name=value; the value is JSON, or else text.", show_default=False)
]
Key = Annotated[str | None, typer.Option(help="An idempotency key, for a tool that takes one outside its arguments.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for each answer.")]
Token = Annotated[
    str | None,
    typer.Option(
        envvar=TOKEN_VARIABLE,
        show_default=False,
        help="The caller's token. Prefer the environment variable: other users can see a process's command line.",
    ),
]


def authorization(token: str | None) -> dict[str, str]:
    """The headers that carry a token.

    Raises:
        ConfigurationError: it has a character that no token has; the sentence does not quote it.
    """
    if not token:
        return {}
    if not _TOKEN.fullmatch(token):
        raise ConfigurationError(f"the token (--token, {TOKEN_VARIABLE}) has a character that no bearer token has")
    return {"Authorization": f"Bearer {token}"}


def check_uris(uris: Sequence[str]) -> None:
    """Refuse URIs that no resource of a fleet can have; raises ConfigurationError."""
    from mcpfleet.contracts.hints import BadUri, check_published  # noqa: PLC0415

    try:
        for uri in uris:
            check_published(uri)
    except BadUri as error:
        raise ConfigurationError(str(error)) from None


def read_arguments(pairs: list[str]) -> dict[str, Any]:
    """Read `name=value` pairs; a value that is JSON is read as JSON, any other as text.

    Raises:
        ValueError: a pair has no `=`.
    """
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"{pair!r} is not name=value")
        try:
            arguments[name] = json.loads(text, parse_constant=_refuse)
        except ValueError:
            arguments[name] = text
    return arguments


def _refuse(constant: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(constant)
