"""Reads TOML, and finds the line of each table and key, which Python's parser does not tell."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.tracebacks import SourceLine
from mcpfleet.sources.config_file import DEEPEST, ConfigFile, Keys, read_text

_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_NAMES: Final = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_TABLE: Final = re.compile(rf"[ \t]*(?P<open>\[\[?)[ \t]*(?P<names>{_NAMES})[ \t]*\]\]?")
_KEY: Final = re.compile(rf"[ \t]*(?P<names>{_NAMES})[ \t]*=")
_TOKEN: Final = re.compile(
    r""""{3}(?:[^\\]|\\.)*?"{3}|\'{3}.*?\'{3}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|\#[^\n]*|[\[\]{}\n]""", re.DOTALL
)
"""A text or a comment, whose brackets and line ends mean nothing; a bracket; the end of a line."""


def read_toml(file: Path) -> ConfigFile:
    """Read a file.

    Raises:
        ConfigurationError: it cannot be read, or is no TOML.
    """
    text = read_text(file)
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = re.fullmatch(r"(?P<why>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)", str(error))
        line = int(said["line"]) if said is not None and said["line"] else None
        raise ConfigurationError(
            f"{SourceLine(str(file), line)}: {str(error) if said is None else said['why']}"
        ) from None
    except RecursionError:
        raise ConfigurationError(f"{file}: tables and lists are nested over {DEEPEST} levels") from None
    return ConfigFile(file, value, dict(_lines(text)))


def _lines(text: str) -> Iterator[tuple[Keys, int]]:
    """Yield the keys at the beginning of statements, in a text that is TOML."""
    table: Keys = ()
    repeated: dict[Keys, int] = {}
    lines = text.split("\n")
    for number in _starts(text):
        line = lines[number - 1]
        if head := _TABLE.match(line):
            table = _split(head["names"])
            if head["open"] == "[[":
                repeated[table] = repeated.get(table, -1) + 1
                table = (*table, repeated[table])
            yield table, number
        elif key := _KEY.match(line):
            names = _split(key["names"])
            for end in range(1, len(names) + 1):
                yield (*table, *names[:end]), number


def _starts(text: str) -> Iterator[int]:
    """Yield the numbers of the lines that begin a statement; brackets hold lines together."""
    number, depth = 1, 0
    yield number
    for part in (found[0] for found in _TOKEN.finditer(text)):
        number += part.count("\n")
        depth += (part in "[{") - (part in "]}")
        if part == "\n" and depth == 0:
            yield number


def _split(names: str) -> Keys:
    parts = re.findall(_PART, names)
    return tuple(next(iter(tomllib.loads(f"{each} = 0"))) for each in parts)
