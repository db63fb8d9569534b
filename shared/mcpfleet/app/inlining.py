"""Writes the definitions of a schema where they are used: many clients do not follow `$ref`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from pydantic_core import to_json

from mcpfleet.app.validation import LISTS, MAPS, MAX_SCHEMA_DEPTH, MAX_SUBSCHEMAS, SINGLES, walk

FREE_SIZE: Final = 64 * 1024
"""Bytes up to which a schema may grow by any factor."""
MOST_GROWTH: Final = 2
"""The most that a larger schema may grow by."""

_LOCAL: Final = "#/$defs/"
_SAYS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"}
)
"""Keywords that accept and refuse nothing: beside a `$ref`, they replace those of its target."""


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that means the same, with each definition in the places that name it.

    A definition that contains itself stays in `$defs`. The root never is a `$ref` alone. A schema that would have over
    64 KiB and over twice its size keeps all of its references, as does one that would exceed the bounds of M27.
    """
    shared = schema.get("$defs")
    if not isinstance(shared, dict) or not shared:
        return schema
    names = {f"{_LOCAL}{_escaped(name)}": name for name in shared}
    if any(ref not in names for ref in _refs(schema)):
        return schema  # it leads elsewhere, which is not ours to write
    recursive = _recursive({name: {names[ref] for ref in _refs(each)} for name, each in shared.items()})
    if _size(schema, shared, names, recursive) > max(FREE_SIZE, MOST_GROWTH * len(to_json(schema))):
        return schema

    def write(place: dict[str, Any]) -> dict[str, Any]:
        name = names.get(str(place.get("$ref")))
        if name is None or name in recursive:
            return _mapped(place, write)
        beside = {key: value for key, value in place.items() if key != "$ref"}
        return _merged(write(shared[name]), _mapped(beside, write))

    root = {key: value for key, value in schema.items() if key != "$defs"}
    name = names.get(str(root.get("$ref")))
    if name in recursive:  # clients look for the root's own type
        root = _merged(shared[name], {key: value for key, value in root.items() if key != "$ref"})
    made = write(root)
    kept = {name: _mapped(shared[name], write) for name in shared if name in recursive}
    if kept:
        made["$defs"] = kept
    return made if _is_bounded(made) else schema


def _mapped(schema: dict[str, Any], write: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Return a schema with its subschemas rewritten; values such as those of `const` are no schemas."""
    made: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in MAPS and isinstance(value, dict):
            made[keyword] = {key: write(each) if isinstance(each, dict) else each for key, each in value.items()}
        elif keyword in LISTS and isinstance(value, list):
            made[keyword] = [write(each) if isinstance(each, dict) else each for each in value]
        elif keyword in SINGLES and isinstance(value, dict):
            made[keyword] = write(value)
        elif keyword == "discriminator" and isinstance(value, dict):  # OpenAPI's; its mapping names definitions
            made[keyword] = {key: each for key, each in value.items() if key != "mapping"}
        else:
            made[keyword] = value
    return made


def _merged(target: dict[str, Any], beside: dict[str, Any]) -> dict[str, Any]:
    """Write the target of a `$ref` together with what stands beside the `$ref`: both hold."""
    if all(keyword in _SAYS or keyword not in target for keyword in beside):
        return target | beside
    return {"allOf": [target], **beside}


def _refs(schema: dict[str, Any]) -> Iterator[str]:
    return (str(place.schema["$ref"]) for place in walk(schema) if "$ref" in place.schema)


def _recursive(uses: dict[str, set[str]]) -> set[str]:
    """Return the definitions that lead back to themselves."""

    def reached(name: str) -> set[str]:
        found: set[str] = set()
        waiting = [*uses[name]]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting.extend(uses[each])
        return found

    return {name for name in uses if name in reached(name)}


def _size(schema: dict[str, Any], shared: dict[str, Any], names: dict[str, str], recursive: set[str]) -> int:
    """Count the bytes of the result before it is made, which a few definitions could multiply without end."""

    @cache
    def size(name: str) -> int:
        return _own_size(shared[name], names, lambda used: 0 if used in recursive else size(used))

    root = {key: value for key, value in schema.items() if key != "$defs"}
    return _own_size(root, names, lambda used: 0 if used in recursive else size(used)) + sum(map(size, recursive))


def _own_size(schema: dict[str, Any], names: dict[str, str], size: Callable[[str], int]) -> int:
    return len(to_json(schema)) + sum(size(names[ref]) for ref in _refs(schema))


def _is_bounded(schema: dict[str, Any]) -> bool:
    return all(
        place.depth <= MAX_SCHEMA_DEPTH and count <= MAX_SUBSCHEMAS for count, place in enumerate(walk(schema), start=1)
    )


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
