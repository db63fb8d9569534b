"""Forms for users: makes a flat JSON Schema of a type, and reads a filled form back (M54, M55)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from mcpfleet.app.errors import AskError, Mistake
from mcpfleet.app.input import Unusable
from mcpfleet.app.schema import UNUSABLE, why_unusable
from mcpfleet.app.validation import Validator
from mcpfleet.app.values import SchemaGenerator

FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
"""The formats of a text field."""
MOST_FIELDS: Final = 100
"""Fields of one form."""

_CACHED: Final = 256
_SHARED: Final = frozenset({"type", "title", "description", "default"})
_CHOICES: Final = _SHARED | {"enum", "enumNames", "oneOf"}
_KEYWORDS: Final = {
    "string": _SHARED | {"minLength", "maxLength", "format"},
    "number": _SHARED | {"minimum", "maximum"},
    "integer": _SHARED | {"minimum", "maximum"},
    "boolean": _SHARED,
    "array": _SHARED | {"minItems", "maxItems", "items"},
}
_SAID_OTHERWISE: Final = frozenset({"examples", "deprecated", "uniqueItems"})
"""Members that pydantic may write and a form leaves out: they change no accepted value."""


@dataclass(frozen=True)
class Form:
    """A form that is ready to be asked."""

    schema: dict[str, Any]
    """`requestedSchema`."""
    _validator: Validator
    _adapter: TypeAdapter[Any] | None

    def read(self, content: Any) -> Any:
        """Return the handler's value for a filled form.

        Raises:
            Unusable: it breaks the schema, or the author's own validators.
        """
        if not isinstance(content, dict):
            raise Unusable("the filled form is not an object")
        # Clients send null for an empty field.
        filled = {name: value for name, value in content.items() if value is not None}
        if not self._validator.accepts(filled):
            raise Unusable("the filled form breaks its schema")
        if self._adapter is None:
            return filled
        try:
            return self._adapter.validate_python(filled)
        except ValidationError as error:
            raise Unusable("the filled form is not accepted") from error


def form_of(wanted: Any) -> Form:
    """Return the form of a type (a model, a dataclass, a TypedDict), or of an author's own schema.

    Raises:
        AskError: it is not a flat object of texts, numbers, booleans and choices; the error names the type and the
            field.
    """
    try:
        if isinstance(wanted, Mapping):
            return _of_schema(to_json(wanted))
        return _of_type(wanted)
    except Mistake as mistake:
        name = "the schema" if isinstance(wanted, Mapping) else getattr(wanted, "__qualname__", repr(wanted))
        where = f"{name}.{mistake.parameter}" if mistake.parameter else name
        raise AskError(f"no form can be made of {where}: {mistake.why}") from mistake


@functools.lru_cache(_CACHED)
def _of_type(wanted: Any) -> Form:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(wanted)
        schema = adapter.json_schema(mode="validation", schema_generator=SchemaGenerator)
    except UNUSABLE as error:
        raise Mistake(f"it has no JSON Schema ({why_unusable(error)})") from error
    return _form(schema, adapter)


@functools.lru_cache(_CACHED)
def _of_schema(text: bytes) -> Form:
    return _form(from_json(text), None)


def _form(schema: dict[str, Any], adapter: TypeAdapter[Any] | None) -> Form:
    shared = schema.get("$defs", {})
    if "$ref" in schema:  # of a type that refers to itself
        schema = _target(schema, shared)
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, dict) or not properties:
        raise Mistake("a form is an object with fields: a model, a dataclass or a TypedDict")
    if len(properties) > MOST_FIELDS:
        raise Mistake(f"a form has at most {MOST_FIELDS} fields")
    flat: dict[str, Any] = {
        "type": "object",
        "properties": {name: _field(name, stated, shared) for name, stated in properties.items()},
    }
    if required := schema.get("required"):
        flat["required"] = list(required)
    return Form(flat, Validator(flat, formats=True), adapter)


def _field(name: str, stated: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """Write one field in the forms that clients know: without `$ref` and `anyOf`."""
    field = _plain(stated, shared)
    if field.get("default", 0) is None:
        del field["default"]
    if "const" in field:
        field["enum"] = [field.pop("const")]
    if "oneOf" in field:
        field.pop("enum", None)  # the titled choices repeat it
    if field.get("type") == "array":
        field["items"] = _items(name, _plain(field.get("items", {}), shared))
    is_choice = field.get("type") == "string" and ("enum" in field or "oneOf" in field)
    allowed = _CHOICES if is_choice else _KEYWORDS.get(str(field.get("type")))
    if allowed is None:
        raise Mistake("must be a text, a number, an integer, a boolean or a choice", name)
    if unknown := field.keys() - allowed:
        raise Mistake(f"has {', '.join(sorted(unknown))}, which forms do not have: check it in a validator", name)
    if field.get("format", "date") not in FORMATS:
        raise Mistake(f"has the format {field['format']!r}, and forms have {', '.join(sorted(FORMATS))}", name)
    if is_choice:
        _check_choices(name, field)
    return field


def _plain(stated: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """Resolve a `$ref`, and drop null from a field: forms leave such a field empty."""
    field = {key: value for key, value in stated.items() if key not in _SAID_OTHERWISE}
    forms = [each for each in field.get("anyOf", []) if each != {"type": "null"}]
    if "anyOf" in field and len(forms) == 1:
        del field["anyOf"]
        field = forms[0] | field
    if "$ref" in field:
        field = _target(field, shared) | {key: value for key, value in field.items() if key != "$ref"}
    return {key: value for key, value in field.items() if key not in _SAID_OTHERWISE}


def _target(schema: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    target = shared.get(str(schema["$ref"]).removeprefix("#/$defs/"))
    if not isinstance(target, dict):
        raise Mistake(f"{schema['$ref']!r} leads nowhere")
    # A class's own name is no title for people.
    return {key: value for key, value in target.items() if key not in ("title", "description")}


def _items(name: str, items: dict[str, Any]) -> dict[str, Any]:
    """Write the items of a list, which is a choice of several."""
    if "const" in items:
        items["enum"] = [items.pop("const")]
    if "oneOf" in items:
        items = {"anyOf": items["oneOf"]}
    if "anyOf" in items:
        _check_titled(name, items["anyOf"])
        return {"anyOf": items["anyOf"]}
    if "enum" not in items:
        raise Mistake("a list must be one of choices: `list[Literal[…]]`", name)
    _check_choices(name, items)
    return {"type": "string", "enum": items["enum"]}


def _check_choices(name: str, field: dict[str, Any]) -> None:
    if "oneOf" in field:
        _check_titled(name, field["oneOf"])
    elif not all(isinstance(choice, str) for choice in field["enum"]):
        raise Mistake("choices are texts", name)


def _check_titled(name: str, choices: Any) -> None:
    for choice in choices if isinstance(choices, list) else [None]:
        if not isinstance(choice, dict) or not isinstance(choice.get("const"), str) or "title" not in choice:
            raise Mistake('titled choices are `{"const": "…", "title": "…"}`', name)
