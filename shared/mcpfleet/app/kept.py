"""What a task keeps of a result that its tool's sanitizer has yet to see, so that each reader gets their own (K13).

It is kept as a list, `["data",{…}]`, and not as the object that a result is: an edge of a release that knows no
sanitizers of tasks cannot splice it, and so shows it to nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from pydantic_core import from_json

from mcpfleet.app.errors import OutputError
from mcpfleet.app.outcome import Outcome


class Shape(StrEnum):
    """What the handler returned: its sanitizer takes the same."""

    OUTCOME = "outcome"
    TEXT = "text"
    BLOCK = "block"
    BLOCKS = "blocks"
    """A sequence; texts in it are blocks by now."""
    NOTHING = "nothing"
    DATA = "data"


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


@dataclass(frozen=True, slots=True)
class Stored:
    """The same as it comes back."""

    shape: Shape
    result: dict[str, Any]

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what a worker wrote.

        Raises:
            OutputError: it is of another form.
        """
        try:
            shape, result = from_json(text)
            return cls(Shape(shape), dict(result))
        except (ValueError, TypeError) as error:
            raise OutputError("a task's result was kept in another form") from error
