"""Work that a worker holds, a call or a task, and the frames that tell the bus's side how its handler is doing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from mcpfleet.contracts.call import FrameKind
from mcpfleet.contracts.pool_tasks import Claimed
from mcpfleet.telemetry.trace import TraceContext

TRY_AGAIN: Final = "1 try-again"
"""A task result's line, followed by seconds: the attempt failed, and this is the task's end if it was the last."""


class CallKey(NamedTuple):
    """Names a call over all edges."""

    edge: str
    call: str

    @property
    def conversation(self) -> str:
        """The name that its spans show."""
        return self.call


class TaskKey(NamedTuple):
    """Names one holding of a task: a task that is claimed again has another fence."""

    task: str
    fence: int

    @property
    def conversation(self) -> str:
        """The name that its spans show."""
        return f"{self.task}.{self.fence}"


WorkKey: TypeAlias = CallKey | TaskKey


class Purpose(Enum):
    """The part of the result that its caller wants."""

    RESULT = auto()
    """The whole result."""
    OUTCOME = auto()
    """Only whether there is one: nobody reads it."""
    SANITIZE = auto()
    """A kept result of a task, sanitized for one reader: the handler does not run (K12)."""


@dataclass(slots=True, eq=False, kw_only=True)
class Work:
    """One run of a handler. It crosses from the bus's loop to the handlers' loop."""

    key: WorkKey
    definition: str
    subject: str
    """The subject that brought it."""
    deadline: float
    """Monotonic seconds at which the run must have ended."""
    trace: TraceContext
    purpose: Purpose = Purpose.RESULT


@dataclass(slots=True, eq=False, kw_only=True)
class CallWork(Work):
    """A call of an edge."""

    key: CallKey
    body: bytes
    wants_progress: bool


@dataclass(slots=True, eq=False, kw_only=True)
class TaskWork(Work):
    """One attempt of a task."""

    key: TaskKey
    claimed: Claimed | None = None
    """The claimed task. None if a call became the task: its handler runs already."""


Order: TypeAlias = CallWork | TaskWork | WorkKey
"""Tells the handlers' loop to run a handler, or to cancel the run of this key."""


@dataclass(frozen=True, slots=True)
class Report:
    """The progress of a call."""

    key: CallKey
    body: bytes


@dataclass(frozen=True, slots=True)
class Logged:
    """A message for the log of a call's client."""

    key: CallKey
    body: bytes


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The status message of a task, and the progress that it tells."""

    key: TaskKey
    message: str
    progress: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The last frame of a run: its handler has returned."""

    key: WorkKey
    kind: FrameKind
    body: bytes
    header: str | None = None
    handed_to: HandedTo | None = None
    """The call is another worker's; this frame is sent if that one refuses it."""


@dataclass(frozen=True, slots=True)
class HandedTo:
    """The worker to which a call is handed on."""

    worker: str
    doubt: tuple[FrameKind, bytes, str | None]
    """The end that is sent if that worker may have it, and does not say so."""


Frame: TypeAlias = Report | Logged | StatusReport | Ended
