"""Reads JSON as editors write it, with comments and commas at ends, and remembers the line of each member."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed leaves it out
from pathlib import Path
from typing import Any, Final

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.tracebacks import SourceLine
from mcpfleet.sources.config_file import DEEPEST, ConfigFile, Keys, read_text

_BETWEEN: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
"""Spaces and comments."""
_SCALAR: Final = re.compile(r"[-+.\w]+")


class _Malformed(Exception):
    """Raised where the text is no JSON."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at


def read_json(file: Path) -> ConfigFile:
    """Read a file that holds one object.

    Raises:
        ConfigurationError: it cannot be read, is no JSON, holds something else, or names a member twice.
    """
    text = read_text(file)
    reader = _Reader(text)
    try:
        value = reader.whole()
    except _Malformed as error:
        line = text.count("\n", 0, error.at) + 1
        raise ConfigurationError(f"{SourceLine(str(file), line)}: {error}") from None
    if not isinstance(value, dict):
        raise ConfigurationError(f"{file}: the file must hold a JSON object")
    return ConfigFile(file, value, reader.lines)


class _Reader:
    """Reads a text from its beginning to its end, once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line, self._counted = 1, 0
        self.lines: dict[Keys, int] = {}

    def whole(self) -> Any:
        value = self._value(())
        if self._peek():
            raise _Malformed(self._at, "the JSON ends here, and more text follows")
        return value

    def _peek(self) -> str:
        """Skip what means nothing; return the next character, or nothing at the end."""
        found = _BETWEEN.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return self._text[self._at : self._at + 1]

    def _value(self, keys: Keys) -> Any:
        if len(keys) > DEEPEST:
            raise _Malformed(self._at, f"objects and lists are nested over {DEEPEST} levels")
        begins = self._peek()
        if begins == "{":
            return self._object(keys)
        if begins == "[":
            return self._list(keys)
        return self._string() if begins == '"' else self._scalar()

    def _note(self, keys: Keys) -> None:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        self.lines[keys] = self._line

    def _object(self, keys: Keys) -> dict[str, Any]:
        self._at += 1
        made: dict[str, Any] = {}
        while (begins := self._peek()) != "}":
            if begins != '"':
                raise _Malformed(self._at, "a member's name in double quotes is expected here, or }")
            at = self._at
            name = self._string()
            if name in made:
                raise _Malformed(at, f"{name!r} stands twice in one object")
            self._note((*keys, name))
            if self._peek() != ":":
                raise _Malformed(self._at, f"a colon is expected here, after {name!r}")
            self._at += 1
            made[name] = self._value((*keys, name))
            self._comma("}")
        self._at += 1
        return made

    def _list(self, keys: Keys) -> list[Any]:
        self._at += 1
        made: list[Any] = []
        while self._peek() != "]":
            self._note((*keys, len(made)))
            made.append(self._value((*keys, len(made))))
            self._comma("]")
        self._at += 1
        return made

    def _comma(self, end: str) -> None:
        """Pass a comma, which may stand before the end too."""
        if (next_ := self._peek()) == ",":
            self._at += 1
        elif next_ != end:
            raise _Malformed(self._at, f"a comma is expected here, or {end}")

    def _string(self) -> str:
        try:
            value, self._at = scanstring(self._text, self._at + 1, True)
        except json.JSONDecodeError as error:
            raise _Malformed(error.pos, "this text in quotes is malformed or has no end") from None
        return str(value)

    def _scalar(self) -> Any:
        found = _SCALAR.match(self._text, self._at)
        try:
            value = json.loads(found[0] if found else "", parse_constant=_refuse)
        except ValueError:
            raise _Malformed(self._at, "a value is expected here") from None
        assert found is not None
        self._at = found.end()
        return value


def _refuse(_: str) -> Any:
    raise ValueError
