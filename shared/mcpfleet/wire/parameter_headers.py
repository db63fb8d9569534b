"""Headers that a client of 2026-07-28 writes: `Mcp-Name`, and `Mcp-Param-…` for arguments (M6, M7)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

ANNOTATION: Final = "x-mcp-header"
"""The member of a schema that names an argument's header."""
NAMED: Final[Mapping[str, str]] = {
    "tools/call": "name", "prompts/get": "name", "resources/read": "uri",
    "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId",
}  # fmt: skip
"""The parameter that `Mcp-Name` repeats, by method (T3)."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PLAIN: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?|")
"""A value that a header carries as it is; the empty one too."""
_SAFE: Final = 2**53 - 1
_TYPES: Final = {"string", "integer", "boolean"}

Paths = dict[str, tuple[str, ...]]
"""The path of an argument by the name of its header."""


def encode(value: str) -> str:
    """Return a text as a header's value: as it is, or in Base64 if a header could not carry it."""
    if _PLAIN.fullmatch(value) and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="


def headers_of(schema: Any, arguments: Any) -> dict[str, str]:
    """Return the headers of a call of a tool with this input schema.

    Raises:
        ValueError: the schema's annotations break the rules; the sentence says how.
    """
    return headers_at(dict(paths_of(schema)), arguments)


def headers_at(paths: Paths, arguments: Any) -> dict[str, str]:
    """Return the headers for arguments at these paths; an absent argument has none."""
    values = ((header, _value_at(arguments, path)) for header, path in paths.items())
    return {f"Mcp-Param-{header}": encode(text) for header, value in values if (text := _text(value)) is not None}


def paths_of(schema: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each header of a schema with the path of its argument.

    Raises:
        ValueError: the schema's annotations break the rules; the sentence says how.
    """
    found = list(_reachable(schema, ()))
    if len(found) != _count(schema):
        raise ValueError(f"{ANNOTATION} stands where no chain of properties leads")
    names = [header.lower() for header, _ in found]
    if len(set(names)) < len(names):
        raise ValueError(f"two arguments have the same {ANNOTATION}")
    yield from found


def _reachable(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        if not isinstance(inner, dict):
            continue
        if ANNOTATION in inner:
            header = inner[ANNOTATION]
            if not isinstance(header, str) or not _TOKEN.fullmatch(header):
                raise ValueError(f"its {ANNOTATION} for {name!r} is not a header's name")
            if inner.get("type") not in _TYPES:
                raise ValueError(f"its {ANNOTATION} for {name!r} needs the type string, integer or boolean")
            yield header, (*path, name)
        yield from _reachable(inner, (*path, name))


def _count(schema: Any, *, is_names: bool = False) -> int:
    """Count the annotations anywhere in a schema; a property may itself have that name."""
    if isinstance(schema, list):
        return sum(map(_count, schema))
    if not isinstance(schema, dict):
        return 0
    own = 0 if is_names else int(ANNOTATION in schema)
    skipped = {"const", "default", "enum", "examples"}
    return own + sum(
        _count(inner, is_names=name == "properties" and not is_names)
        for name, inner in schema.items()
        if is_names or name not in skipped
    )


def _value_at(arguments: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        arguments = arguments.get(name) if isinstance(arguments, dict) else None
    return arguments


def _text(value: Any) -> str | None:
    """Return a value as a header has it; None for one that no header repeats."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) <= _SAFE:
        return str(int(value))
    return json.dumps(value) if isinstance(value, (int, float)) else None
