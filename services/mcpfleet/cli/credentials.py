"""The token and headers that a command sends beside its messages, given as they are or as files that are read anew."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from mcpfleet.cli.endpoint import authorization
from mcpfleet.process.errors import ConfigurationError

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")
_OURS: Final = re.compile(
    r"(?i)accept|connection|content-.*|host|last-event-id|mcp-.*|te|trailer|transfer-encoding|upgrade"
)
"""Headers that the protocol or the connection sets."""
_LONGEST: Final = 64 * 1024
"""Bytes of a secret's file."""

Header = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=@FILE", show_default=False, help="A header for each request: NAME=@FILE or NAME=VALUE."),
]


class Credentials:
    """A token and headers. A file is read again for each request, so a renewed secret counts at once."""

    def __init__(self, token: str | None, headers: Sequence[str] = ()) -> None:
        """Check what was given, and that each file can be read.

        Args:
            token: a token, or `@` and the name of a file that has it; None for no token.
            headers: pairs `NAME=VALUE` or `NAME=@FILE`.

        Raises:
            ConfigurationError: one of them is malformed, or its file cannot be read; no sentence quotes a value.
        """
        self._token = token or None
        self._headers = dict(map(_pair, headers))
        self.headers()

    def headers(self) -> Mapping[str, str]:
        """Return the headers, as the files are now.

        Raises:
            ConfigurationError: a file cannot be read, or has something else than a header's value.
        """
        found = {name: _checked(name, _content(f"--header {name}", value)) for name, value in self._headers.items()}
        if self._token is None:
            return found
        return {**found, **authorization(_content("--token", self._token))}


def _pair(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise ConfigurationError("--header: must be NAME=@FILE or NAME=VALUE, where NAME is the name of a header")
    if _OURS.fullmatch(name):
        raise ConfigurationError(f"--header {name}: the protocol sets this header itself")
    return name, value


def _content(what: str, value: str) -> str:
    if not value.startswith("@"):
        return value
    path = Path(value[1:]).expanduser()
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST + 1)
        if len(text) > _LONGEST:
            raise ConfigurationError(f"{what}: {path} has more than {_LONGEST} bytes")
        content = text.decode().strip()
    except OSError as error:
        raise ConfigurationError(f"{what}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{what}: {path} is not text") from None
    if not content:
        raise ConfigurationError(f"{what}: {path} is empty")
    return content


def _checked(name: str, value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise ConfigurationError(f"--header {name}: the value has a character that no header can carry")
    return value
