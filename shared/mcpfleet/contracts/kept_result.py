"""What a task keeps of a result that its tool's sanitizer has yet to see, so that each reader gets their own (K13).

It is kept as a list, `["data",{…}]`, and not as the object that a result is: an edge of a release that knows no
sanitizers of tasks cannot splice it, and so shows it to nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from pydantic_core import from_json


class Shape(StrEnum):
    """What the handler returned: its sanitizer takes the same."""

    OUTCOME = "outcome"
    RESULT = "result"
    """MCP's own."""
    TEXT = "text"
    BLOCK = "block"
    BLOCKS = "blocks"
    """A sequence; texts in it are blocks by now."""
    NOTHING = "nothing"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class KeptResult:
    """It, as it comes back."""

    shape: Shape
    result: dict[str, Any]
    """The members of the result as it was returned."""

    @classmethod
    def read(cls, text: str | bytes) -> Self:
        """Read what a worker wrote.

        Raises:
            ValueError: it is of another form.
        """
        try:
            shape, result = from_json(text)
            return cls(Shape(shape), dict(result))
        except (ValueError, TypeError) as error:
            raise ValueError("a task's result was kept in another form") from error


def write(shape: Shape, result: bytes) -> bytes:
    """Write a result's JSON with its shape, to be kept."""
    return b'["%b",%b]' % (shape.encode(), result)


def is_kept(end: str | bytes) -> bool:
    """Whether the end of a task that is completed is of this form; all others may be told as they are."""
    return end[:1] in ("[", b"[")
