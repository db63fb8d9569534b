"""Shows how a tool or a prompt is called, by its entry in a list: as a signature in Python's form, and as arguments.

The entry may come from any server, so nothing here trusts its form, and no text of it steers a terminal.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

UNSAID: Final = "…"
"""A default that the list does not tell, or that is too long to show; and a type that is nested too deep."""
_TYPES: Final = {
    "string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None", "array": "list",
    "object": "dict",
}  # fmt: skip
_FORMATS: Final = {
    "date": "date", "date-time": "datetime", "time": "time", "duration": "timedelta", "uuid": "UUID", "uri": "Url",
    "path": "Path", "binary": "bytes", "base64url": "bytes",
}  # fmt: skip
_DEEPEST: Final = 4
"""Types inside of each other that are shown."""
_MOST_CHOICES: Final = 6
"""Values of an enumeration that are shown."""
_LONGEST_DEFAULT: Final = 40
"""Characters of a default that is shown."""
_SAMPLES: Final[Mapping[str, Any]] = {
    "string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None, "array": [], "object": {},
}  # fmt: skip
SAMPLES_OF_FORMATS: Final = {
    "date": "2026-01-31", "date-time": "2026-01-31T12:00:00Z", "time": "12:00:00Z", "duration": "PT1H",
    "uuid": "7f1c1f0e-4a4f-4c6e-9d5c-3f6f2f1b8a11", "uri": "https://example.com/", "email": "ann@example.com",
}  # fmt: skip
"""A value of each format."""


def tool_signature(name: str, schema: object) -> str:
    """Return a tool's signature, for example `find(before: date = …, limit: int = 10)`.

    Required parameters come first, in the order of the schema's `required`.

    Args:
        name: the tool's name.
        schema: its `inputSchema`; a malformed part of it is shown as `Any`.
    """
    return f"{printable(name)}({', '.join(_Root(schema).parameters())})"


def prompt_signature(name: str, arguments: object) -> str:
    """Return a prompt's signature, for example `review(title, tone = …)`: each argument is a text.

    Args:
        name: the prompt's name.
        arguments: its `arguments`; None for none.
    """
    listed = [each for each in _items(arguments) if isinstance(each, Mapping)]
    listed.sort(key=lambda each: each.get("required") is not True)
    shown = [_name(str(each.get("name"))) + ("" if each.get("required") is True else f" = {UNSAID}") for each in listed]
    return f"{printable(name)}({', '.join(shown)})"


def argument_type(name: str, schema: object) -> str:
    """Return the type of one parameter as a signature has it.

    Args:
        name: the parameter's name.
        schema: the schema that it stands in.
    """
    return _Root(schema).type_of(name)


def example_arguments(schema: object) -> list[str]:
    """Return arguments that `mcpfleet call` takes for a tool: one for each required parameter, quoted for a shell.

    They fit the types of the schema. They may break other rules of it, such as a pattern.
    """
    root = _Root(schema)
    return [shlex.quote(f"{printable(name)}={_word(root.sample(name))}") for name in root.required]


class _Root:
    """An input schema, whose parts may refer to its definitions."""

    def __init__(self, schema: object) -> None:
        self._schema = schema if isinstance(schema, Mapping) else {}
        properties = self._schema.get("properties")
        self._properties: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
        self.required = [name for name in _items(self._schema.get("required")) if isinstance(name, str)]

    def parameters(self) -> list[str]:
        """Each parameter as a signature has it."""
        shown = [self._parameter(name) for name in self.required]
        optional = [name for name in self._properties if name not in self.required]
        shown += [f"{self._parameter(name)} = {self._default(name)}" for name in optional]
        others = self._schema.get("additionalProperties")
        if others is True or (isinstance(others, Mapping) and others):
            shown.append(f"**others: {self._type(others, 0)}")
        return shown

    def type_of(self, name: str) -> str:
        """The type of a parameter."""
        return self._type(self._properties.get(name), 0)

    def sample(self, name: str) -> Any:
        """A value that fits a parameter's type."""
        return self._sample(self._properties.get(name), 0)

    def _parameter(self, name: str) -> str:
        return f"{_name(name)}: {self.type_of(name)}"

    def _default(self, name: str) -> str:
        stated = self._properties[name]
        if not isinstance(stated, Mapping) or "default" not in stated:
            return UNSAID
        shown = _literal(stated["default"])
        return shown if len(shown) <= _LONGEST_DEFAULT else UNSAID

    def _type(self, schema: object, depth: int) -> str:
        """The type of a value in Python's words; `Any` for a schema that does not tell one."""
        if depth > _DEEPEST:
            return UNSAID
        if not isinstance(schema, Mapping):
            return "Any"
        schema, name = self._resolved(schema)
        if values := _values(schema) or name:
            return values
        for word in ("anyOf", "oneOf"):
            if options := _items(schema.get(word)):
                return _either(self._type(each, depth) for each in options)
        kinds = schema.get("type")
        several = kinds if isinstance(kinds, list) else [kinds]
        return _either(self._typed(str(kind), schema, depth) for kind in several)

    def _typed(self, kind: str, schema: Mapping[str, Any], depth: int) -> str:
        if kind == "string":
            if schema.get("contentEncoding") in ("base64", "base64url"):
                return "bytes"
            return _FORMATS.get(str(schema.get("format")), "str")
        if kind == "array":
            if parts := _items(schema.get("prefixItems")):
                return f"tuple[{', '.join(self._type(each, depth + 1) for each in parts)}]"
            container = "set" if schema.get("uniqueItems") is True else "list"
            items = schema.get("items")
            return f"{container}[{self._type(items, depth + 1)}]" if isinstance(items, Mapping) else container
        if kind == "object":
            others = schema.get("additionalProperties")
            return f"dict[str, {self._type(others, depth + 1)}]" if isinstance(others, Mapping) else "dict"
        return _TYPES.get(kind, "Any")

    def _resolved(self, schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
        """A schema or the definition that it refers to, and the name of its object, if it has one."""
        name = ""
        for _ in range(_DEEPEST):
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                break
            section, _, name = reference.removeprefix("#/").partition("/")
            definitions = self._schema.get(section)
            found = definitions.get(name) if isinstance(definitions, Mapping) else None
            if not isinstance(found, Mapping):
                break
            schema = found
        if not name and schema.get("type") == "object" and "properties" in schema:
            name = str(schema.get("title", ""))
        return schema, name if name.isidentifier() else ""

    def _sample(self, schema: object, depth: int) -> Any:
        if depth > _DEEPEST or not isinstance(schema, Mapping):
            return _SAMPLES["string"]
        schema, _ = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        for word in ("examples", "enum"):
            if values := _items(schema.get(word)):
                return values[0]
        if "default" in schema:
            return schema["default"]
        for word in ("anyOf", "oneOf"):
            if options := _items(schema.get(word)):
                return self._sample(options[0], depth + 1)
        kinds = schema.get("type")
        kind = str(kinds[0] if isinstance(kinds, list) and kinds else kinds)
        return self._sample_of(kind, schema, depth)

    def _sample_of(self, kind: str, schema: Mapping[str, Any], depth: int) -> Any:
        if kind == "string":
            sample = SAMPLES_OF_FORMATS.get(str(schema.get("format")), _SAMPLES["string"])
            least = schema.get("minLength")
            return sample.ljust(least, "x") if isinstance(least, int) and least <= _LONGEST_DEFAULT else sample
        if kind in ("integer", "number"):
            return _number(kind, schema)
        if kind == "array":
            parts = _items(schema.get("prefixItems"))
            return [
                self._sample(each, depth + 1) for each in parts or [schema.get("items")] * bool(schema.get("minItems"))
            ]
        if kind == "object":
            properties = schema.get("properties")
            named = properties if isinstance(properties, Mapping) else {}
            required = [name for name in _items(schema.get("required")) if isinstance(name, str)]
            return {name: self._sample(named.get(name), depth + 1) for name in required}
        return _SAMPLES.get(kind, _SAMPLES["string"])


def _values(schema: Mapping[str, Any]) -> str:
    """The values of a schema that allows only those; empty for any other schema."""
    if "const" in schema:
        return _literal(schema["const"])
    choices = [_literal(each) for each in _items(schema.get("enum"))]
    return _either([*choices[:_MOST_CHOICES], UNSAID] if len(choices) > _MOST_CHOICES else choices) if choices else ""


def _number(kind: str, schema: Mapping[str, Any]) -> Any:
    """A number between the bounds of a schema."""
    sample = _SAMPLES[kind]
    least, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    most, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if isinstance(least, int | float) and sample < least:
        return least
    if isinstance(above, int | float) and sample <= above:
        return above + 1
    if isinstance(most, int | float) and sample > most:
        return most
    if isinstance(below, int | float) and sample >= below:
        return below - 1
    return sample


def printable(text: str) -> str:
    """Return a text with escapes in place of the characters that could steer a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _items(value: object) -> list[Any]:
    """A list as it is; nothing for any other value, which a malformed entry may have in a list's place."""
    return list(value) if isinstance(value, list | tuple) else []


def _either(types: Iterable[str]) -> str:
    """Several types as one, each once, and `None` at the end."""
    distinct = list(dict.fromkeys(types))
    if "None" in distinct and distinct[-1] != "None":
        distinct.remove("None")
        distinct.append("None")
    return " | ".join(distinct) or "Any"


def _literal(value: Any) -> str:
    """A JSON value in Python's words, with texts in JSON's quotes."""
    if isinstance(value, str):
        return printable(json.dumps(value, ensure_ascii=False))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_literal(str(key))}: {_literal(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return repr(value)


def _name(name: str) -> str:
    """A parameter's name; one that is no name in Python stands in quotes."""
    return name if name.isidentifier() else _literal(name)


def _word(value: Any) -> str:
    """A value as `name=value` takes it: JSON, or a text that is not JSON."""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    try:
        json.loads(value)
    except ValueError:
        return printable(value)
    return json.dumps(value)
