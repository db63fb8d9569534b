"""What a task is made from: the call that it was, opaque to all but who makes tasks and who runs them (K4, K6)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pydantic_core import from_json, to_json

from mcpfleet.contracts.call import CallBody
from mcpfleet.telemetry.trace import TraceContext

_TRACE: Final = re.compile(r'\{"version":1,"endpoint":"[a-z0-9-]*","trace":"([0-9a-f-]{55})"')
"""Where the trace stands, in front of what may be large."""
VERSION: Final = 1
"""Of the form; a release writes it only after the one that can read it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The call behind a task: checked arguments, caller, the client's capabilities, and what was answered before."""

    endpoint: str
    call: CallBody
    trace: TraceContext | None = None
    """In which the task was asked for: its runs are a part of it."""

    @staticmethod
    def trace_of(text: str) -> TraceContext | None:
        """The trace alone, without reading the rest."""
        found = _TRACE.match(text)
        return TraceContext.parse(found[1]) if found else None

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
