"""JSON Schema: checks a schema at its declaration, and values in calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import jsonschema_rs

from mcpfleet.app.errors import Mistake, Problem
from mcpfleet.app.problems import explain

DIALECTS: Final = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
)
"""The known values of `$schema` (M27); a schema without it is read as the first."""

MAX_SCHEMA_DEPTH: Final = 64
"""Schemas within schemas (M27)."""
MAX_SUBSCHEMAS: Final = 10_000
"""Subschemas of one schema (M27)."""
MAX_BACKTRACKS: Final = 100_000
"""Steps back that one match of a `pattern` may take; then it counts as no match (M27)."""
MAX_PROBLEMS: Final = 16
"""Problems that one answer lists."""


_DESCRIBED: Final[dict[str, Callable[..., bool]]] = {"regex": lambda _: True}
"""Formats that only describe: Python's patterns differ from the JavaScript that JSON Schema means."""


class Validator:
    """A schema that is ready to check values.

    Args:
        schema: a schema in its dialect.
        formats: whether a `format` must hold, and does not only describe.

    Raises:
        Mistake: the dialect is unknown, the schema is not valid in it, a `$ref` leads out of it, or it exceeds a bound
            above.
    """

    def __init__(self, schema: dict[str, Any], *, formats: bool = False) -> None:
        self._schema = schema
        self.names = _checked_names(schema)
        """The property names that the schema declares: the only names that a problem repeats."""
        try:
            self._validator = jsonschema_rs.validator_for(
                schema,
                retriever=_refuse,
                validate_formats=formats or None,  # None leaves it to the dialect
                formats=_DESCRIBED,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_BACKTRACKS),
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            where = "/".join(map(str, getattr(error, "instance_path", ()))) or "its root"
            raise Mistake(f"the schema is not usable, at {where}: {error.message}") from None

    def accepts(self, value: Any) -> bool:
        """Return whether a JSON value conforms; a string with a lone surrogate fits into no JSON text."""
        try:
            return self._validator.is_valid(value)
        except UnicodeEncodeError:
            return False

    def problems(self, value: Any) -> tuple[Problem, ...]:
        """Return how a JSON value breaks the schema: at most `MAX_PROBLEMS`, none if it conforms."""
        found: list[Problem] = []
        try:
            for error in self._validator.iter_errors(value):
                found += explain(error, self._schema, self.names)
                if len(found) >= MAX_PROBLEMS:
                    break
        except UnicodeEncodeError:
            return (Problem("", "a string holds a lone surrogate"),)
        # Several ways may lead to one rule.
        return tuple(dict.fromkeys(found))[:MAX_PROBLEMS]


def check_input_root(schema: dict[str, Any]) -> None:
    """Check the root of a tool's input schema by the form that official clients' models of a list require.

    One tool that breaks it makes such a client refuse the whole list, though the dialect may allow it.

    Raises:
        Mistake: it has another form; the sentence repeats nothing of the schema.
    """
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if schema.get("type") != "object":
        raise Mistake('an input schema must say `"type": "object"` at its root')
    if not isinstance(properties, dict) or not all(isinstance(each, dict) for each in properties.values()):
        raise Mistake("an input schema's `properties` must be objects: `{}` where anything goes")
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise Mistake("an input schema's `required` must be a list of names")


def _checked_names(schema: dict[str, Any]) -> frozenset[str]:
    """Check the schema's bounds and dialects; return the property names that it declares."""
    names: set[str] = set()
    for count, place in enumerate(walk(schema), start=1):
        if place.depth > MAX_SCHEMA_DEPTH or count > MAX_SUBSCHEMAS:
            raise Mistake(f"the schema has over {MAX_SUBSCHEMAS} subschemas, or is over {MAX_SCHEMA_DEPTH} levels deep")
        dialect = place.schema.get("$schema", DIALECTS[0])
        if not isinstance(dialect, str) or dialect.removesuffix("#") not in DIALECTS:
            raise Mistake(f"unknown JSON Schema dialect {dialect!r}; known are {', '.join(DIALECTS)}")
        names.update(_declared_names(place.schema))
    return frozenset(names)


def _declared_names(schema: dict[str, Any]) -> Iterator[str]:
    """Yield the property names of one subschema, which may still break its dialect."""
    dependent = schema.get("dependentRequired")
    lists = [schema.get("required"), *(dependent.values() if isinstance(dependent, dict) else ())]
    for names in (schema.get("properties"), *lists):
        if isinstance(names, (dict, list)):
            yield from (name for name in names if isinstance(name, str))


def _refuse(uri: str) -> NoReturn:
    """Stand in place of the library's fetch of a `$ref` over HTTP or from a file (M26)."""
    raise ValueError(f"{uri} is outside the schema, and nothing is fetched")


# The keywords that hold subschemas: by name, in a list, or one.
MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
SINGLES: Final = frozenset(
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
class Subschema:
    """A subschema and the keywords that lead to it from the root."""

    path: tuple[str | int, ...]
    schema: dict[str, Any]
    depth: int
    """The number of schemas above it."""
    by_properties: bool
    """Whether every step is a `properties` key, so that its value has one place in the arguments."""

    @property
    def name(self) -> str:
        """The property, or the last keyword, that leads here."""
        return str(self.path[-1]) if self.path else ""


def walk(schema: dict[str, Any]) -> Iterator[Subschema]:
    """Visit the root and every subschema below it; `$ref` is not followed."""
    waiting = [Subschema((), schema, 0, True)]
    while waiting:
        place = waiting.pop()
        yield place
        waiting.extend(_children(place))


def _children(place: Subschema) -> Iterator[Subschema]:
    for keyword, value in place.schema.items():
        below: list[tuple[tuple[str | int, ...], Any]] = []
        if keyword in MAPS and isinstance(value, dict):
            below = [((keyword, name), item) for name, item in value.items()]
        elif keyword in LISTS and isinstance(value, list):
            below = [((keyword, index), item) for index, item in enumerate(value)]
        elif keyword in SINGLES:
            below = [((keyword,), value)]
        by_properties = place.by_properties and keyword == "properties"
        for step, item in below:
            if isinstance(item, dict):
                yield Subschema(place.path + step, item, place.depth + 1, by_properties)
