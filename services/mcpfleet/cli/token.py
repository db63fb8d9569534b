"""The token with which people call: an option, or a variable, and never printed."""

from __future__ import annotations

import re
from typing import Annotated, Final

import typer

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.settings import TOKEN_VARIABLE

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""A bearer token (RFC 6750, 2.1); what is none is refused before a library could quote it in an error."""

Token = Annotated[
    str | None,
    typer.Option(
        envvar=TOKEN_VARIABLE,
        show_default=False,
        help="The token of the caller; rather in the environment, since others see a process's command line.",
    ),
]


def authorization(token: str | None) -> dict[str, str]:
    """The headers that carry a token.

    Raises:
        ConfigurationError: it has characters that no token has; the sentence does not quote it.
    """
    if not token:
        return {}
    if not _TOKEN.fullmatch(token):
        raise ConfigurationError(f"the token (--token, {TOKEN_VARIABLE}) has a character that no bearer token has")
    return {"Authorization": f"Bearer {token}"}
