"""The scopes that a call needs by its arguments: a small payment needs fewer than a large one (X55)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mcpfleet.contracts.catalog import Listed

if TYPE_CHECKING:
    from mcpfleet.app.validation import Validator

_MOST: Final = 256
"""Definitions whose compiled conditions are kept."""
_DEEPEST: Final = 16
"""Levels of arguments in which defaults are filled in, and references that one place may follow."""

_Conditions = Mapping[str, "Validator | None"]
"""By scopes, the schema of the arguments that need each; None for an unusable schema."""


class ConditionalScopes:
    """Finds the scopes of calls. It compiles each definition's conditions once."""

    def __init__(self) -> None:
        self._compiled: OrderedDict[str, _Conditions] = OrderedDict()

    def needed(self, listed: Listed, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return all scopes that a call of a definition with these arguments needs.

        An absent argument counts by the default that the input schema shows: the handler will use it. A condition that
        cannot be evaluated counts as met.
        """
        definition = listed.definition
        if not definition.scopes_if:
            return definition.scopes
        completed = with_defaults(definition.wire.get("inputSchema"), arguments)
        met = (
            scope
            for scope, condition in self._conditions(listed).items()
            if condition is None or condition.accepts(completed)
        )
        return tuple(dict.fromkeys((*definition.scopes, *met)))

    def _conditions(self, listed: Listed) -> _Conditions:
        conditions = self._compiled.get(listed.digest)
        if conditions is None:
            conditions = {scope: _compile(schema) for scope, schema in listed.definition.scopes_if.items()}
            self._compiled[listed.digest] = conditions
            if len(self._compiled) > _MOST:
                self._compiled.popitem(last=False)
        return conditions


def _compile(schema: dict[str, Any]) -> Validator | None:
    # Imported here, since most edges have no such definition.
    from mcpfleet.app.errors import Mistake  # noqa: PLC0415
    from mcpfleet.app.validation import Validator  # noqa: PLC0415

    try:
        return Validator(schema)
    except Mistake:
        return None


def with_defaults(schema: Any, value: Any) -> Any:
    """Return a value in which each absent property has the default that its schema shows."""
    return _completed(schema, value, schema, _DEEPEST)


def _completed(schema: Any, value: Any, root: Any, levels: int) -> Any:
    schema = _resolved(schema, root)
    if not isinstance(schema, dict) or levels == 0:
        return value
    if isinstance(value, list):
        return [_completed(schema.get("items"), item, root, levels - 1) for item in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    completed = dict(value)
    for name, stated in properties.items():
        if name in value:
            completed[name] = _completed(stated, value[name], root, levels - 1)
        elif isinstance(stated, dict) and "default" in stated:
            completed[name] = _completed(stated, stated["default"], root, levels - 1)
    return completed


def _resolved(schema: Any, root: Any) -> Any:
    """Return the schema that a local `$ref` leads to, with what stands beside the `$ref`."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, dict) or not isinstance(reference := schema.get("$ref"), str):
            return schema
        found = root
        for part in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        beside = {name: member for name, member in schema.items() if name != "$ref"}
        schema = {**found, **beside} if isinstance(found, dict) else beside
    return schema
