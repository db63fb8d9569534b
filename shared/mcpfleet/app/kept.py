"""A result of a task whose tool's sanitizer has yet to see it (K13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcpfleet.app.outcome import Outcome
from mcpfleet.contracts.kept_result import Shape


@dataclass(frozen=True, slots=True)
class Kept:
    """A result that was checked by the output schema, and by no sanitizer."""

    outcome: Outcome
    shape: Shape

    @property
    def is_error(self) -> bool:
        """Whether a model should read it as a failure."""
        return self.outcome.is_error

    def fields(self) -> dict[str, Any]:
        """The members of the result as it was returned."""
        return self.outcome.fields()
