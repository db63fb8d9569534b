"""The headers `Mcp-Param-…` of modern calls: the arguments that a tool's schema names are repeated there (M6, M7)."""

from __future__ import annotations

import base64
import json
import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from mcpfleet.cli.stdio.messages import RawMessage

_ANNOTATION: Final = "x-mcp-header"
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PLAIN: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?|")
"""A value that a header carries as it is; the empty one too."""
_MOST_TOOLS: Final = 10_000
"""Tools whose headers are remembered."""
_SAFE: Final = 2**53 - 1
_TYPES: Final = {"string", "integer", "boolean"}

Paths = dict[str, tuple[str, ...]]
"""The path of an argument by the name of its header."""


def encode(value: str) -> str:
    """Return a text as a header's value: as it is, or in Base64 if a header could not carry it."""
    if _PLAIN.fullmatch(value) and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="


class ToolHeaders:
    """Which arguments of which tool a header repeats, as the endpoint's lists of tools have told."""

    def __init__(self) -> None:
        self._tools: OrderedDict[str, Paths] = OrderedDict()

    def learn(self, answer: RawMessage) -> list[str]:
        """Read a list of tools; returns a sentence for each tool that a client over HTTP must leave out."""
        result = answer.value.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        refused = []
        for tool in tools if isinstance(tools, list) else ():
            name = tool.get("name") if isinstance(tool, dict) else None
            if not isinstance(name, str):
                continue
            try:
                paths = dict(_paths(tool.get("inputSchema")))
            except ValueError as error:
                refused.append(f"the tool {name!r} is left out: {error}")
                continue
            self._tools.pop(name, None)
            if paths:
                self._tools[name] = paths
        while len(self._tools) > _MOST_TOOLS:
            self._tools.popitem(last=False)
        return refused

    def of_call(self, call: RawMessage) -> dict[str, str]:
        """Return the headers of a call."""
        name, arguments = call.params.get("name"), call.params.get("arguments")
        paths = self._tools.get(name, {}) if isinstance(name, str) else {}
        return _headers(paths, arguments)


def headers_of(schema: Any, arguments: Any) -> dict[str, str]:
    """Return the headers of a call of a tool with this input schema.

    Raises:
        ValueError: the schema's annotations break the rules; the sentence says how.
    """
    return _headers(dict(_paths(schema)), arguments)


def _headers(paths: Paths, arguments: Any) -> dict[str, str]:
    values = ((header, _value_at(arguments, path)) for header, path in paths.items())
    return {f"Mcp-Param-{header}": encode(text) for header, value in values if (text := _text(value)) is not None}


def without_bad_tools(answer: RawMessage) -> dict[str, Any]:
    """Return a list of tools without those whose annotations are against the rules."""
    result = answer.value["result"]
    return {**answer.value, "result": {**result, "tools": [tool for tool in result["tools"] if _is_good(tool)]}}


def _is_good(tool: Any) -> bool:
    try:
        list(_paths(tool.get("inputSchema") if isinstance(tool, dict) else None))
    except ValueError:
        return False
    return True


def _paths(schema: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each header of a schema with the path of its argument; raises ValueError with what breaks the rules."""
    found = list(_reachable(schema, ()))
    if len(found) != _count(schema):
        raise ValueError(f"{_ANNOTATION} stands where no chain of properties leads")
    names = [header.lower() for header, _ in found]
    if len(set(names)) < len(names):
        raise ValueError(f"two arguments have the same {_ANNOTATION}")
    yield from found


def _reachable(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        if not isinstance(inner, dict):
            continue
        if _ANNOTATION in inner:
            header = inner[_ANNOTATION]
            if not isinstance(header, str) or not _TOKEN.fullmatch(header):
                raise ValueError(f"its {_ANNOTATION} for {name!r} is not a header's name")
            if inner.get("type") not in _TYPES:
                raise ValueError(f"its {_ANNOTATION} for {name!r} needs the type string, integer or boolean")
            yield header, (*path, name)
        yield from _reachable(inner, (*path, name))


def _count(schema: Any, *, is_names: bool = False) -> int:
    """Count the annotations anywhere in a schema; a property may itself have that name."""
    if isinstance(schema, list):
        return sum(map(_count, schema))
    if not isinstance(schema, dict):
        return 0
    own = 0 if is_names else int(_ANNOTATION in schema)
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
