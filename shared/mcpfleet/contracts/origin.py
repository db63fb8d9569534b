"""What a task is made from: the call that it was, opaque to all but who makes tasks and who runs them (K4, K6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic_core import from_json, to_json

from mcpfleet.contracts.call import CallBody
from mcpfleet.telemetry.trace import TraceContext

VERSION: Final = 1
"""Of the form; a release writes it only after the one that can read it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The call behind a task: checked arguments, caller, the client's capabilities, and what was answered before."""

    endpoint: str
    call: CallBody
    trace: TraceContext | None = None
    """In which the task was asked for: its runs are a part of it."""

    def write(self) -> str:
        """Write it, to be kept byte for byte."""
        trace = to_json(None if self.trace is None else self.trace.header())
        parts = (VERSION, to_json(self.endpoint), trace, self.call.write())
        return (b'{"version":%d,"endpoint":%b,"trace":%b,"call":%b}' % parts).decode()

    @classmethod
    def read(cls, text: str) -> Origin:
        """Read what `write` wrote, in this release or one before.

        Raises:
            ValueError: it is of another form.
        """
        value = from_json(text)
        if not isinstance(value, dict) or value.get("version") != VERSION:
            raise ValueError("a task's origin is of a version that this release does not know")
        return cls(value["endpoint"], CallBody.read(to_json(value["call"])), TraceContext.parse(value.get("trace")))
