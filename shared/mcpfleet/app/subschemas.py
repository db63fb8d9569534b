"""A walk over a JSON Schema's subschemas: only where the dialects put schemas, never into data such as `default`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_MAPS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_SINGLES: Final = frozenset(
    {
        "items",
        "additionalItems",
        "additionalProperties",
        "unevaluatedItems",
        "unevaluatedProperties",
        "contains",
        "contentSchema",
        "propertyNames",
        "not",
        "if",
        "then",
        "else",
    }
)


@dataclass(frozen=True, slots=True)
class Place:
    """A subschema and the keywords that lead to it from the root."""

    path: tuple[str | int, ...]
    schema: dict[str, Any]
    depth: int
    """Schemas above it."""
    by_properties: bool
    """Whether every step is a `properties` key, so that its value has one place in the arguments."""

    @property
    def name(self) -> str:
        """The property, or the last keyword, that leads here."""
        return str(self.path[-1]) if self.path else ""


def walk(schema: dict[str, Any]) -> Iterator[Place]:
    """Visit the root and every subschema below it; `$ref` is not followed."""
    waiting = [Place((), schema, 0, True)]
    while waiting:
        place = waiting.pop()
        yield place
        waiting.extend(_children(place))


def _children(place: Place) -> Iterator[Place]:
    for keyword, value in place.schema.items():
        below: list[tuple[tuple[str | int, ...], Any]] = []
        if keyword in _MAPS and isinstance(value, dict):
            below = [((keyword, name), item) for name, item in value.items()]
        elif keyword in _LISTS and isinstance(value, list):
            below = [((keyword, index), item) for index, item in enumerate(value)]
        elif keyword in _SINGLES:
            below = [((keyword,), value)]
        by_properties = place.by_properties and keyword == "properties"
        for step, item in below:
            if isinstance(item, dict):
                yield Place(place.path + step, item, place.depth + 1, by_properties)
