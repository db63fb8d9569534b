"""Further scopes for some arguments of a tool: their declaration, and the rules for it (X55)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from mcpfleet.app.declaration import check_scopes
from mcpfleet.app.errors import Mistake
from mcpfleet.app.validation import Validator
from mcpfleet.contracts.manifest import MOST_WORDS

ScopesIf: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By scopes, a JSON Schema each: a call whose arguments fit the schema needs the scope."""


def conditions(scopes_if: ScopesIf, schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the conditions as the definition has them.

    Args:
        scopes_if: as the author gave them.
        schema: the tool's input schema, whose defaults stand for absent arguments. An absent argument without a default
            that the schema shows fits every condition on it, so the scope is needed.

    Raises:
        Mistake: a scope or a schema has no valid form, or a schema names an argument that the tool lacks.
    """
    given: Any = scopes_if
    if not isinstance(given, Mapping) or not all(isinstance(each, Mapping) for each in given.values()):
        raise Mistake('scopes_if maps scopes to JSON Schemas: {"payments:large": {"properties": {…}}}')
    if len(scopes_if) > MOST_WORDS:
        raise Mistake(f"scopes_if has over {MOST_WORDS} entries")
    check_scopes(scopes_if)
    for scope, condition in scopes_if.items():
        try:
            Validator(dict(condition))
        except Mistake as mistake:
            raise Mistake(f"scopes_if {scope!r}: {mistake.why}") from mistake
        for name in _named(condition):
            if name not in (properties := schema.get("properties", {})):
                known = ", ".join(map(repr, properties)) or "none"
                raise Mistake(f"scopes_if {scope!r} names the argument {name!r}, and the tool has {known}")
    return {scope: dict(condition) for scope, condition in scopes_if.items()}


def _named(condition: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments that a condition names at its top."""
    properties, required = condition.get("properties"), condition.get("required")
    yield from properties if isinstance(properties, Mapping) else ()
    yield from required if isinstance(required, list) else ()
