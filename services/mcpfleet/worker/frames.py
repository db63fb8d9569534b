"""What a handler's side says of a call to the bus's side: how far it is, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from mcpfleet.contracts.call import FrameKind
from mcpfleet.worker.calls.table import Key


@dataclass(frozen=True, slots=True)
class Report:
    """Progress of a call, or the status message of a task."""

    key: Key
    body: bytes
    reached: float | None = None
    """The progress that a task's message tells."""


@dataclass(frozen=True, slots=True)
class Logged:
    """A message of a call for its client's log."""

    key: Key
    body: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The last frame of a call; its handler has really returned."""

    key: Key
    kind: FrameKind
    body: bytes
    header: str | None = None


Frame = Report | Logged | Ended
"""All that is said of a call."""
