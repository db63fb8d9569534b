"""Explains how a value breaks a schema: by field and rule, never by a part of what the caller sent (T16)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import jsonschema_rs
from pydantic_core import to_json

from mcpfleet.app.errors import Problem
from mcpfleet.app.values import BASE64, DURATION, LOCAL, NOT_BASE64, TIME

LONGEST_LISTING: Final = 200
"""Characters of a rule's own list, such as the values of an `enum`; the rest is left out."""

_LIMITS: Final = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be greater than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "minProperties": "must have at least {} members",
    "maxProperties": "must have at most {} members",
    "pattern": "must match the pattern {}",
    "format": "must be in the format {}",
    "const": "must be {}",
}
_FORMATS: Final = {
    "date-time": "must be a date and a time with its zone (RFC 3339), such as 2026-01-31T09:30:00Z",
    "date": "must be a date, such as 2026-01-31",
    "uuid": "must be a UUID, such as 00000000-0000-4000-8000-000000000000",
    "uri": "must be a URI with its scheme (RFC 3986), such as https://example.com/a%20b",
    "email": "must be an e-mail address",
    "ipv4": "must be an IPv4 address",
    "ipv6": "must be an IPv6 address",
}
_A_TIME: Final = "must be a time of day, such as 09:30:00"
_A_DURATION: Final = "must be a duration (ISO 8601), such as PT1H30M"
_PATTERNS: Final = {
    str(TIME["pattern"]): _A_TIME,
    str(DURATION["pattern"]): _A_DURATION,
    str(LOCAL["pattern"]): "must be a date and a time without a zone, such as 2026-01-31T09:30:00",
}
"""The patterns of our own types, which are too long to read."""
_PLAIN: Final[dict[str, dict[str, str]]] = {"format": _FORMATS, "pattern": _PATTERNS}
_KINDS: Final = {
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "bytes_too_short": "must have at least {min_length} bytes",
    "bytes_too_long": "must have at most {max_length} bytes",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "date_past": "must be in the past",
    "date_future": "must be in the future",
    "datetime_past": "must be in the past",
    "datetime_future": "must be in the future",
    "timezone_naive": "must have no zone",
    "timezone_aware": "must have a zone",
    "missing": "is required",
    "extra_forbidden": "is not declared",
}
"""Kinds of pydantic's errors. They quote the type's own bounds."""
_FAMILIES: Final = {
    "int_": "must be integer",
    "float_": "must be number",
    "decimal_": "must be number",
    "bool_": "must be boolean",
    "string_": "must be string",
    "list_": "must be array",
    "dict_": "must be object",
    "datetime_": _FORMATS["date-time"],
    "date_": _FORMATS["date"],
    "time_delta_": _A_DURATION,
    "time_": _A_TIME,
    "uuid_": _FORMATS["uuid"],
    "url_": _FORMATS["uri"],
}
"""All other kinds by their beginnings, the longer ones first."""
_UNDECLARED: Final = "has a member that is not declared"
_FIXED: Final = {
    "required": "is required",
    "anyOf": "must have one of the declared forms",
    "oneOf": "must have exactly one of the declared forms",
    "not": "must not have the excluded form",
    "contains": "must contain the declared items",
    "uniqueItems": "must have no item twice",
    "propertyNames": "has a member whose name is not allowed",
    "falseSchema": "is not allowed",
    "unevaluatedProperties": _UNDECLARED,
}


def explain(error: jsonschema_rs.ValidationError, schema: dict[str, Any], names: frozenset[str]) -> Iterator[Problem]:
    """Explain one error of the validator in words that quote only the schema.

    Args:
        error: an error of the validator.
        schema: the root schema.
        names: the property names that the schema declares; others are the caller's, and are not repeated.
    """
    keyword = error.kind.name
    if keyword in ("anyOf", "oneOf") and (inner := _the_form_meant(error)) is not None:
        for nested in inner:
            yield from explain(nested, schema, names)
        return
    path = list(error.instance_path)
    if keyword == "required":
        path.append(error.kind.as_dict()["property"])
    yield Problem(render_path(path, names), _rule(error, schema))


def explain_kind(kind: str, bounds: Mapping[str, Any]) -> str:
    """Say how a value breaks a type, by the kind of pydantic's error.

    Args:
        kind: the error's kind; the author's own is repeated.
        bounds: the error's context, of which only the type's own bounds are quoted.
    """
    if kind == BASE64:
        return NOT_BASE64
    if kind in _KINDS:
        with suppress(KeyError):
            return _KINDS[kind].format_map(bounds)
    found = (words for beginning, words in _FAMILIES.items() if kind.startswith(beginning))
    return next(found, f"is not accepted ({kind})")


def render_path(path: Iterable[str | int], names: frozenset[str]) -> str:
    """Write a path as `books[0].title`; `*` stands for a name that the schema does not declare."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if step in names else "*")
    return text


def _rule(error: jsonschema_rs.ValidationError, schema: dict[str, Any]) -> str:
    keyword, value = error.kind.name, error.kind.value
    if keyword == "additionalProperties":
        return _only_known(_parent(schema, error.schema_path))
    if keyword == "type":
        return f"must be {' or '.join(_ordered(value))}"
    if keyword == "enum":
        return f"must be one of {_listing(error.kind.as_dict()['options'])}"
    if keyword in ("anyOf", "oneOf") and (types := _types_of_forms(error)):
        return f"must be {' or '.join(types)}"
    if keyword in _LIMITS:
        stated = value if isinstance(value, str) else _json(value)
        plain = _PLAIN.get(keyword, {}).get(stated)
        return plain or _LIMITS[keyword].format(stated) + _example(keyword, _parent(schema, error.schema_path))
    return _FIXED.get(keyword, f"must satisfy {keyword}")


def _example(keyword: str, schema: dict[str, Any]) -> str:
    """Return the author's example of a text with a pattern or a format; empty where there is none."""
    examples = schema.get("examples")
    stated = [each for each in examples if isinstance(each, str)] if isinstance(examples, list) else []
    return f", such as {_listing(stated[:1])}" if keyword in ("pattern", "format") and stated else ""


def _the_form_meant(error: jsonschema_rs.ValidationError) -> list[jsonschema_rs.ValidationError] | None:
    """Return the errors of the one alternative whose type and tag fit, such as the object of `Book | None`."""
    forms = getattr(error.kind, "context", [])
    fitting = [form for form in forms if form and _type_error(form, error) is None and not _has_other_tag(form, error)]
    return fitting[0] if len(fitting) == 1 else None


def _has_other_tag(form: Sequence[jsonschema_rs.ValidationError], at: jsonschema_rs.ValidationError) -> bool:
    """Return whether a member that tells alternatives apart (a `Literal` field) means another one."""
    below = len(at.instance_path) + 1
    return any(nested.kind.name in ("const", "enum") and len(nested.instance_path) == below for nested in form)


def _types_of_forms(error: jsonschema_rs.ValidationError) -> list[str]:
    """List the types of alternatives that all fail by type; empty if one fails otherwise."""
    found = [_type_error(form, error) for form in getattr(error.kind, "context", [])]
    if not all(found):
        return []
    return _ordered(dict.fromkeys(name for each in found if each for name in each.kind.value))


def _type_error(
    form: Sequence[jsonschema_rs.ValidationError], at: jsonschema_rs.ValidationError
) -> jsonschema_rs.ValidationError | None:
    return next(
        (nested for nested in form if nested.kind.name == "type" and nested.instance_path == at.instance_path), None
    )


def _ordered(types: Iterable[str]) -> list[str]:
    """Order type names, with `null` last: the library has an order of its own."""
    return sorted(types, key=lambda name: (name == "null", name))


def _only_known(schema: dict[str, Any]) -> str:
    if "patternProperties" in schema:
        return _UNDECLARED
    known = list(schema.get("properties", {}))
    return f"may only have the members {_listing(known)}" if known else "may have no members"


def _parent(schema: Any, keyword_path: Sequence[str | int]) -> dict[str, Any]:
    """Return the schema that holds a keyword, from the validator's path to it."""
    for step in keyword_path[:-1]:
        try:
            schema = schema[step]
        except (LookupError, TypeError):
            return {}
    return schema if isinstance(schema, dict) else {}


def _listing(values: Sequence[Any]) -> str:
    text = ", ".join(value if isinstance(value, str) else _json(value) for value in values)
    return text if len(text) <= LONGEST_LISTING else text[:LONGEST_LISTING] + "…"


def _json(value: Any) -> str:
    return to_json(value).decode()
