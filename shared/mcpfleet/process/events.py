"""Frozen events for observers: of processes, requests, tasks, streams, sessions, grants and snapshots (X69).

Each has the process that tells it. No event has a token, an argument or a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Event:
    """The common part of all events."""

    service: str
    """The service of the process: `edge`, `worker` and so on."""
    process: str
    """The process's id, as log lines name it."""


@dataclass(frozen=True, slots=True)
class ProcessBegan(Event):
    """A service has begun."""


@dataclass(frozen=True, slots=True)
class ProcessEnded(Event):
    """A service has ended."""

    outcome: Literal["ended", "failed", "cancelled"]
    seconds: float


@dataclass(frozen=True, slots=True)
class RequestBegan(Event):
    """An edge has admitted no caller yet, or a worker begins a call."""

    method: str
    """An edge's: the method; a worker's: the kind of its handler, such as `tool`."""
    target: str | None
    """The tool's name, where it exists; a worker's: the name of its definition."""
    trace: str
    """The trace's id, the same at edge and worker."""


@dataclass(frozen=True, slots=True)
class RequestEnded(Event):
    """The request is answered, or the call has ended."""

    method: str
    target: str | None
    trace: str
    error: str | None
    """The error's type, as metrics have it; None without an error."""
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskBegan(Event):
    """The tasks service has made a task, or a worker begins an attempt of it."""

    task: str
    """Its id; who knows it cannot read it without its owner's credential."""
    tool: str | None
    """The tool's name, where a worker tells it."""


@dataclass(frozen=True, slots=True)
class TaskEnded(Event):
    """A task has its end, or a worker's attempt has ended."""

    task: str
    tool: str | None
    status: str
    """`completed`, `failed` or `cancelled`; a worker's attempt has its error's type, or `ok`."""


@dataclass(frozen=True, slots=True)
class StreamBegan(Event):
    """A stream of changes is open."""

    endpoint: str
    kind: Literal["listen", "session"]


@dataclass(frozen=True, slots=True)
class StreamEnded(Event):
    """A stream of changes has ended."""

    endpoint: str
    kind: Literal["listen", "session"]
    reason: str
    """As metrics have it."""
    seconds: float


@dataclass(frozen=True, slots=True)
class ClientSessionBegan(Event):
    """A client of 2025 has a session."""

    session: str
    """Its name on the bus: a digest, by which nobody can use it."""


@dataclass(frozen=True, slots=True)
class ClientSessionEnded(Event):
    """A session has ended."""

    session: str
    reason: Literal["client", "surplus", "idle", "retired"]
    """Its client ended it, its owner had too many, it was idle or too old, or a grant of it was denied or is over."""


@dataclass(frozen=True, slots=True)
class GrantBegan(Event):
    """An edge may send a caller the changes of a URI."""

    endpoint: str
    uri: str


@dataclass(frozen=True, slots=True)
class GrantEnded(Event):
    """It may not any more."""

    endpoint: str
    uri: str
    reason: str
    """`refused`, or `unwatched` where no stream of the caller watches the URI any more."""


@dataclass(frozen=True, slots=True)
class SnapshotChanged(Event):
    """The catalog has merged, or an edge has taken, another list of definitions."""

    endpoint: str
    number: int
    definitions: int


Observed: TypeAlias = (
    ProcessBegan
    | ProcessEnded
    | RequestBegan
    | RequestEnded
    | TaskBegan
    | TaskEnded
    | StreamBegan
    | StreamEnded
    | ClientSessionBegan
    | ClientSessionEnded
    | GrantBegan
    | GrantEnded
    | SnapshotChanged
)
"""Any event."""
