"""The rules of a schema in words for a person: what a value must be, and how a value that was typed breaks them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

from mcpfleet.cli.signatures import SAMPLES_OF_FORMATS

_RULES: Final = {
    "minimum": "at least {}", "exclusiveMinimum": "more than {}", "maximum": "at most {}",
    "exclusiveMaximum": "less than {}", "multipleOf": "a multiple of {}", "minLength": "at least {} characters",
    "maxLength": "at most {} characters", "minItems": "at least {} items", "maxItems": "at most {} items",
}  # fmt: skip
"""How each rule of a schema is said."""
_NOT_EMPTY: Final = ("at least 1 characters", "at least 1 items")
_MOST_BACKTRACKS: Final = 100_000
"""Steps back that one match of a server's pattern may take."""
_LONGEST_VALUE: Final = 60
"""Characters of a wrong value that are repeated, since it may be a whole file."""
_LONGEST_PATTERN: Final = 60
"""Characters of a pattern that is shown although there is an example."""
_VALUE: Final = "\N{REPLACEMENT CHARACTER}"
"""Stands for the value in the library's sentence."""


def said(form: Mapping[str, Any]) -> list[str]:
    """The bounds that a schema sets, each in words."""
    found = [words.format(form[word]) for word, words in _RULES.items() if word in form]
    if "pattern" in form:
        found.append(_pattern(form, "matches {}", "such as {}", ", such as {}"))
    return ["not empty" if rule in _NOT_EMPTY else rule for rule in found]


def broken(value: Any, forms: Sequence[Mapping[str, Any]], root: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """How a value breaks all alternatives of a schema: for each problem the place inside of the value, and a predicate.

    Args:
        value: what was typed, read as JSON.
        forms: the alternatives whose type it has.
        root: the schema in which they stand, which has the definitions.
    """
    import jsonschema_rs  # noqa: PLC0415  # only values with rules need it

    found: list[tuple[str, str]] = []
    for form in forms:
        whole = {**{key: root[key] for key in ("$schema", "$defs", "definitions") if key in root}, **form}
        try:
            validator = jsonschema_rs.validator_for(
                whole, retriever=_refuse, validate_formats=True, mask=_VALUE,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_MOST_BACKTRACKS),
            )  # fmt: skip
            errors = list(validator.iter_errors(value))
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
            return  # the server's schema is not usable, so the server itself is to say what is wrong
        problems = [("/".join(map(str, each.instance_path)), _predicate(each, whole)) for each in errors]
        if not problems and form.get("contentEncoding") == "base64" and not _is_base64(value):
            problems = [("", "is not Base64; @FILE takes the content of a file")]
        if not problems:
            return
        found += problems
    yield from found


def _predicate(error: Any, schema: Mapping[str, Any]) -> str:
    """Say how a value breaks a rule, with an example where the rule has one."""
    rule, stated = error.kind.name, error.kind.value
    shown = _shown(error.instance)
    if rule == "pattern":
        at = _schema_at(schema, error.schema_path[:-1]) or {"pattern": stated}
        return f"is not valid: {shown} " + _pattern(at, 'does not match "{}"', "is not written like {}", ", such as {}")
    example = SAMPLES_OF_FORMATS.get(str(stated)) if rule == "format" else None
    like = f", such as {example}" if example else ""
    return f"is not valid: {error.message.replace(_VALUE, shown)}{like}"


def _pattern(form: Mapping[str, Any], stated: str, like: str, beside: str) -> str:
    """Say a pattern. A person reads an example more easily than a long one."""
    pattern, examples = str(form["pattern"]), form.get("examples")
    example = next((each for each in examples if isinstance(each, str)), None) if isinstance(examples, list) else None
    if example is None:
        return stated.format(pattern)
    return like.format(example) if len(pattern) > _LONGEST_PATTERN else stated.format(pattern) + beside.format(example)


def _schema_at(schema: Any, path: Sequence[str | int]) -> Mapping[str, Any] | None:
    for step in path:
        try:
            schema = schema[step]
        except (LookupError, TypeError):
            return None
    return schema if isinstance(schema, Mapping) and "pattern" in schema else None


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[:_LONGEST_VALUE]}… ({len(text):,} characters)"


def _is_base64(value: Any) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        return False
    return True


def _refuse(uri: str) -> NoReturn:
    """Fetch nothing for a server's schema."""
    raise ValueError(uri)
