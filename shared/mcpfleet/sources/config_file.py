"""A configuration file that was read: its values, the line of each, and the sentence of a mistake in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.tracebacks import SourceLine

LARGEST: Final = 1024 * 1024
"""Bytes of a configuration file."""
DEEPEST: Final = 32
"""Levels of objects and lists in one."""

_Model = TypeVar("_Model", bound=BaseModel)
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

Keys: TypeAlias = tuple[str | int, ...]
"""The way to a value: names of members, and indices of lists."""


@dataclass(frozen=True)
class ConfigFile:
    """A configuration file.

    Attributes:
        path: its path, as it was named.
        value: the object that it holds.
        lines: the line of each member and item, from 1 on.
    """

    path: Path
    value: dict[str, Any]
    lines: Mapping[Keys, int] = field(default_factory=dict)

    def place(self, keys: Keys = ()) -> str:
        """Return where a value stands, for people: `fleet.toml:12`, by the line of the value or of what holds it."""
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return str(SourceLine(str(self.path), self.lines.get(keys)))

    def fault(self, keys: Keys, why: str) -> ConfigurationError:
        """Return the error for a value: `fleet.toml:3: sources.memory.command: must be …`."""
        return ConfigurationError(f"{self.place(keys)}: {path_of(keys)}: {why}" if keys else f"{self.place()}: {why}")

    def table(self, keys: Keys, raw: Any) -> dict[str, Any]:
        """Return a value that must be a table.

        Raises:
            ConfigurationError: it is none.
        """
        if not isinstance(raw, dict):
            raise self.fault(keys, f"must be a table, not {kind_of(raw)}")
        return raw

    def texts(self, keys: Keys, raw: Any) -> list[str]:
        """Return a value that must be a list of texts.

        Raises:
            ConfigurationError: it is none.
        """
        if not isinstance(raw, list) or not all(isinstance(each, str) for each in raw):
            raise self.fault(keys, f"must be a list of texts, not {kind_of(raw)}")
        return raw

    def validated(
        self, model: type[_Model], keys: Keys, members: Mapping[str, Any], names: Mapping[str, str] = _NOTHING
    ) -> _Model:
        """Return a model of a table's members.

        Args:
            model: its class.
            keys: the way to the table.
            members: its members, by their names in the model.
            names: for members of the model, their other names in the file.

        Raises:
            ConfigurationError: a member is wrong; the sentence names its line.
        """
        try:
            return model(**members)
        except ValidationError as error:
            way, kind, why = first_fault(error)
            at = (*keys, *(names.get(str(each), each) for each in way))
            if kind == "extra_forbidden":
                known = (names.get(each, each) for each in model.model_fields)
                why = f"no such member: {meant(str(at[-1]), known)}"
            raise self.fault(at, why) from None


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


def kind_of(value: Any) -> str:
    """Return the word for a value's kind, as the sentence of an error has it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "a text"
    if isinstance(value, Mapping):
        return "a table"
    return "a list" if isinstance(value, list) else "a number"


def first_fault(error: ValidationError) -> tuple[Keys, str, str]:
    """Return the first fault: the way to the member, pydantic's kind, and a sentence that says what must be."""
    fault = error.errors(include_url=False, include_input=False)[0]
    why = fault["msg"].replace("Input should be", "must be")
    return fault["loc"], fault["type"], why.replace("a valid tuple", "a list").replace("a valid ", "a ")


def meant(name: str, known: Iterable[str]) -> str:
    """Return what was probably meant by an unknown name, else the known ones, as the end of a sentence."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"
