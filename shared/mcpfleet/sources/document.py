"""A configuration file that was read: its values, and the line of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.tracebacks import SourceLine

LARGEST: Final = 1024 * 1024
"""Bytes of a configuration file."""
DEEPEST: Final = 32
"""Levels of objects and lists in one."""

Keys: TypeAlias = tuple[str | int, ...]
"""The way to a value: names of members, and indices of lists."""


@dataclass(frozen=True)
class Document:
    """A configuration file.

    Attributes:
        file: its path, as it was named.
        value: the object that it holds.
        lines: the line of each member and item, from 1 on.
    """

    file: Path
    value: dict[str, Any]
    lines: Mapping[Keys, int] = field(default_factory=dict)

    def place(self, keys: Keys = ()) -> str:
        """Return where a value stands, for people: `fleet.toml:12`, by the line of the value or of what holds it."""
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return str(SourceLine(str(self.file), self.lines.get(keys)))

    def fault(self, keys: Keys, why: str) -> ConfigurationError:
        """Return the error for a value: `fleet.toml:3: sources.memory.command: must be …`."""
        return ConfigurationError(f"{self.place(keys)}: {path_of(keys)}: {why}" if keys else f"{self.place()}: {why}")


def path_of(keys: Keys) -> str:
    """Return the way to a value, for people: `mcpServers.memory.args[2]`."""
    shown = ""
    for key in keys:
        shown += f"[{key}]" if isinstance(key, int) else f".{key}" if shown else key
    return shown


def read_text(file: Path) -> str:
    """Return a configuration file's text.

    Raises:
        ConfigurationError: it cannot be read, is too large, or is no UTF-8.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(LARGEST + 1)
    except OSError as error:
        why = "the file does not exist" if isinstance(error, FileNotFoundError) else error.strerror
        raise ConfigurationError(f"{file}: {why}") from None
    if len(content) > LARGEST:
        raise ConfigurationError(f"{file}: the file has more than {LARGEST} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file}: the file is not text in UTF-8") from None


def sentence_of(fault: str) -> str:
    """Return a sentence of pydantic as ours are: it says what must be."""
    return fault.replace("Input should be", "must be").replace("a valid tuple", "a list").replace("a valid ", "a ")


def meant(name: str, known: Iterable[str]) -> str:
    """Return what was probably meant by an unknown name, else the known ones, as the end of a sentence."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"
