"""The texts that a task keeps: the call that it was made from (K4, K6), and a result before its sanitizer (K13).

Only the makers and the runners of tasks read an origin. A kept result is written as a list, `["data",{…}]`, and not as
the object that a result is. An edge of a release without sanitizers of tasks cannot splice it, and so shows it to
nobody.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

from pydantic_core import from_json, to_json

from mcpfleet.contracts.call import CallBody
from mcpfleet.telemetry.trace import TraceContext

_TRACE: Final = re.compile(r'\{"version":1,"endpoint":"[a-z0-9-]*","trace":"([0-9a-f-]{55})"')
"""The place of the trace, before members that may be large."""
ORIGIN_VERSION: Final = 1
"""The version of the form; a release writes a new one only after the release that can read it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The call behind a task: checked arguments, caller, the client's capabilities, and earlier answers."""

    endpoint: str
    call: CallBody
    trace: TraceContext | None = None
    """The trace of the request for the task; its runs belong to it."""

    @staticmethod
    def trace_of(text: str) -> TraceContext | None:
        """Return the trace alone, without reading the rest."""
        found = _TRACE.match(text)
        return TraceContext.parse(found[1]) if found else None

    def write(self) -> str:
        """Return the text, which is kept byte for byte."""
        trace = to_json(None if self.trace is None else self.trace.header())
        parts = (ORIGIN_VERSION, to_json(self.endpoint), trace, self.call.write())
        return (b'{"version":%d,"endpoint":%b,"trace":%b,"call":%b}' % parts).decode()

    @classmethod
    def read(cls, text: str) -> Origin:
        """Read a text of this release or an earlier one.

        Raises:
            ValueError: it has another form.
        """
        value = from_json(text)
        if not isinstance(value, dict) or value.get("version") != ORIGIN_VERSION:
            raise ValueError("a task's origin is of a version that this release does not know")
        return cls(value["endpoint"], CallBody.of(value["call"]), TraceContext.parse(value.get("trace")))


class Shape(StrEnum):
    """The kind of value that the handler returned, and that its sanitizer takes."""

    OUTCOME = "outcome"
    RESULT = "result"
    """MCP's own."""
    TEXT = "text"
    BLOCK = "block"
    BLOCKS = "blocks"
    """A sequence; its texts have become blocks."""
    NOTHING = "nothing"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class KeptResult:
    """A kept result, read back."""

    shape: Shape
    result: dict[str, Any]
    """The members of the result as it was returned."""

    @classmethod
    def read(cls, text: str | bytes) -> Self:
        """Read the text of a worker.

        Raises:
            ValueError: it has another form.
        """
        try:
            shape, result = from_json(text)
            return cls(Shape(shape), dict(result))
        except (ValueError, TypeError) as error:
            raise ValueError("a task's result was kept in another form") from error


def write_kept(shape: Shape, result: bytes) -> bytes:
    """Write a result's JSON with its shape."""
    return b'["%b",%b]' % (shape.encode(), result)


def is_kept(end: str | bytes) -> bool:
    """Return whether the end of a completed task has this form; all others may be told as they are."""
    return end[:1] in ("[", b"[")
