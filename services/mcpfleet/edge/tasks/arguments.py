"""The arguments of calls that become tasks, checked before anything is made of them (K4)."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from mcpfleet.contracts.catalog import Listed

if TYPE_CHECKING:
    from mcpfleet.app.validation import Validator

_MOST: Final = 256
"""Schemas that are kept ready."""


class Checks:
    """Checks arguments against their tools' schemas."""

    def __init__(self) -> None:
        self._ready: OrderedDict[str, Validator | None] = OrderedDict()

    def problems(self, listed: Listed, arguments: dict[str, Any]) -> str | None:
        """Say how arguments break a tool's schema, and repeat nothing of them; None where they do not."""
        validator = self._validator(listed)
        if validator is None or validator.accepts(arguments):
            return None
        return "Invalid arguments: " + "; ".join(map(str, validator.problems(arguments)))

    def _validator(self, listed: Listed) -> Validator | None:
        if listed.digest not in self._ready:
            self._ready[listed.digest] = _made(listed.definition.wire.get("inputSchema"))
            if len(self._ready) > _MOST:
                self._ready.popitem(last=False)
        return self._ready[listed.digest]


def _made(schema: Any) -> Validator | None:
    """Make a schema ready; one that is not usable is left to the worker, which checks again."""
    # Imported where it is used: an edge without tasks needs none of it.
    from mcpfleet.app.errors import Mistake  # noqa: PLC0415
    from mcpfleet.app.validation import Validator  # noqa: PLC0415

    try:
        return Validator(schema) if isinstance(schema, dict) else None
    except Mistake:
        return None
