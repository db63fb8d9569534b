"""The frontmatter of a SKILL.md as JSON: only YAML that every reader reads alike (X27).

A host parses the frontmatter that it reads, and compares it with the entry. Readers of YAML 1.1 and 1.2 differ in plain
scalars such as `on`, `017` or `12e3`, so such a scalar is a mistake: with quotes it is a text for both.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from mcpfleet.app.errors import Mistake

LONGEST: Final = 64 * 1024
"""Characters of a frontmatter."""
_DEEPEST: Final = 16
_LARGEST_NUMBER: Final = 2**53 - 1
"""Larger whole numbers are rounded by readers whose numbers are all doubles."""
_FENCED: Final = re.compile(r"---\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_BREAKS: Final = re.compile("[\x85\u2028\u2029\ufeff]")
"""Line ends of YAML 1.1 that are none in YAML 1.2, and the mark of an order of bytes."""

_NULL: Final = re.compile(r"|~|null|Null|NULL")
_BOOL: Final = re.compile(r"true|True|TRUE|false|False|FALSE")
_BOOL_OF_1_1: Final = re.compile(r"y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF", re.ASCII)
_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?[0-9]+\.[0-9]*(?:[eE][-+][0-9]+)?", re.ASCII)
_ENDLESS: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_ELSEWHERE: Final = re.compile(
    r"[-+]?0[bo]?[0-9_]+|[-+]?0x[0-9a-fA-F_]+"  # numbers of other bases
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"  # numbers of base 60
    r"|[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?"  # days and moments
    r"|=|<<",
    re.ASCII,
)
"""Texts that a reader of one of the two reads as something else than a text, besides those above."""


def frontmatter(text: str) -> dict[str, Any]:
    """Read the frontmatter of a SKILL.md.

    Args:
        text: the whole file.

    Returns:
        All fields, as JSON has them.

    Raises:
        Mistake: there is none, or it has what readers read differently; the sentence names the line.
    """
    found = _FENCED.match(text)
    if found is None:
        raise Mistake("it must begin with a frontmatter: a line `---`, fields in YAML, and a line `---`")
    if len(found[1]) > LONGEST:
        raise Mistake(f"the frontmatter has over {LONGEST} characters")
    if _BREAKS.search(found[1]):
        raise Mistake("the frontmatter has a line end that is none in all versions of YAML: use plain line feeds")
    try:
        fields = _Reader(found[1]).read()
        if _Reader(found[1] + "\n").read() != fields:
            raise Mistake("the last field ends with a line end or not by its reader: write `|-` or `>-` for its text")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        why = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise Mistake(f"line {mark.line + 2 if mark else 1}: the frontmatter is not YAML: {why}") from None
    if not isinstance(fields, dict):
        raise Mistake("the frontmatter must be a mapping of fields")
    return fields


class _Reader:
    """Makes JSON of YAML's events, and refuses what is not the same for all."""

    def __init__(self, text: str) -> None:
        self._events = yaml.parse(text, Loader=yaml.SafeLoader)

    def read(self) -> Any:
        next(self._events)  # the stream's start
        start = next(self._events)
        if not isinstance(start, DocumentStartEvent):
            return None
        if start.explicit or start.version or start.tags:
            raise _wrong(start, "the frontmatter has a `---` or `%` of its own: leave it out")
        value = self._value(next(self._events), 0)
        next(self._events)  # the document's end
        more = next(self._events)
        if isinstance(more, DocumentStartEvent):
            raise _wrong(more, "the frontmatter has two documents")
        return value

    def _value(self, event: Event, depth: int) -> Any:
        if isinstance(event, AliasEvent):
            raise _wrong(event, f"`*{event.anchor}` is an alias: repeat the value")
        assert isinstance(event, NodeEvent)
        if event.anchor is not None:
            raise _wrong(event, f"`&{event.anchor}` is an anchor: leave it out")
        if getattr(event, "tag", None) is not None:
            raise _wrong(event, "it has a tag: leave it out, and quote the value if it is a text")
        if depth > _DEEPEST:
            raise _wrong(event, f"it nests over {_DEEPEST} levels deep")
        if isinstance(event, SequenceStartEvent):
            return self._sequence(depth)
        if isinstance(event, MappingStartEvent):
            return self._mapping(depth)
        assert isinstance(event, ScalarEvent)
        return _scalar(event)

    def _sequence(self, depth: int) -> list[Any]:
        values = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            values.append(self._value(event, depth + 1))
        return values

    def _mapping(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._value(event, depth + 1)
            if not isinstance(key, str):
                raise _wrong(event, "a key must be a text: quote it")
            if key in members:
                raise _wrong(event, f"the key {key!r} stands twice")
            members[key] = self._value(next(self._events), depth + 1)
        return members


def _scalar(event: ScalarEvent) -> Any:
    """Return a scalar's value, if readers of YAML 1.1 and 1.2 agree on it."""
    text = event.value
    if event.style is not None:
        return text
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _ENDLESS.fullmatch(text):
        raise _wrong(event, f"`{text}` is no number that JSON has: quote it")
    if _INT.fullmatch(text) and abs(int(text)) <= _LARGEST_NUMBER:
        return int(text)
    if _FLOAT.fullmatch(text) and abs(number := float(text)) <= _LARGEST_NUMBER:
        return number
    if _BOOL_OF_1_1.fullmatch(text) or _ELSEWHERE.fullmatch(text):
        raise _wrong(event, f"readers of YAML 1.1 and 1.2 read `{text}` differently: quote it")
    return text


def _wrong(event: Event, why: str) -> Mistake:
    line = event.start_mark.line if event.start_mark is not None else 0
    return Mistake(f"line {line + 2}: {why}")
