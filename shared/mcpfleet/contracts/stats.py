"""The stats that each process sends to consoles: a few numbers, and its last errors, every two seconds.

The broadcast may be lost, and NATS drops it while no console is open. The subject names the sender, which NATS permits
to it alone; the message does not. Workers are trusted least: this contract bounds what they send, and a console shows
it as theirs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from mcpfleet.contracts.base import Message

EVERY: Final = 2.0
"""Seconds between two messages of a process."""
MOST_BYTES: Final = 16_384
"""Bytes of a message; a longer one is not read."""
MOST_ERRORS: Final = 20
MOST_NUMBERS: Final = 60
MOST_LACKS: Final = 10
MOST_TIMED: Final = 40
"""Tools and methods whose calls one message tells; further ones wait for the next message."""
MOST_BUCKETS: Final = 80
LONGEST_TOOL: Final = 128
LONGEST_NAME: Final = 80
LONGEST_TEXT: Final = 200
LARGEST: Final = 1e15
"""The largest number: sums of many stay numbers."""
ALL_SUBJECTS: Final = "figures.>"
"""The subjects that a console hears."""

Name = Annotated[str, StringConstraints(max_length=LONGEST_NAME)]
Text = Annotated[str, StringConstraints(max_length=LONGEST_TEXT)]
Number = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
ToolName = Annotated[str, StringConstraints(max_length=LONGEST_TOOL)]


class Role(StrEnum):
    """A process that is not a worker: it may have a console."""

    EDGE = "edge"
    AUTHORIZATION = "authorization"
    CATALOG = "catalog"
    SUBSCRIPTIONS = "subscriptions"
    TASKS = "tasks"


class UnmetCondition(Message):
    """A condition of readiness that does not hold."""

    name: Name
    why: Text


class ReportedError(Message):
    """A logged warning or error."""

    at: Number
    """Unix time, by the sender's clock."""
    level: Literal["warning", "error", "critical"]
    event: Text
    of: Text = ""
    """The subject of the error, as `tool=search`."""
    trace: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{32})?$")] = ""
    sampled: bool = False
    """Whether the trace is recorded."""


class CallTimes(Message):
    """The calls of one tool or method that ended since the sender's last message, and how long they took.

    A lost message loses its calls. In return nobody needs to know the message before, and a message has only what was
    called.
    """

    method: Name = ""
    """The request's method at an edge; empty at a worker, whose handlers serve several."""
    tool: ToolName = ""
    """The tool at an edge, else empty; the handler's name at a worker."""
    failed: Count = 0
    waiting: Count = 0
    """Calls that wait for room in a pool now."""
    first: Annotated[int, Field(ge=0, lt=MOST_BUCKETS)] = 0
    """The first of `telemetry.instruments.FINE_BOUNDS` for which `counts` has a number."""
    counts: tuple[Count, ...] = Field(default=(), max_length=MOST_BUCKETS, fail_fast=True)
    """Calls by their duration; those between two bounds belong to the upper one."""


class Stats(Message):
    """The stats of a process now."""

    version: Name = ""
    started: Number
    """Unix time."""
    ready: bool
    stopping: bool = False
    lacks: tuple[UnmetCondition, ...] = Field(default=(), max_length=MOST_LACKS, fail_fast=True)
    numbers: dict[Name, Number] = Field(default={}, max_length=MOST_NUMBERS)
    """Names of numbers may be unknown to this release."""
    troubles: tuple[ReportedError, ...] = Field(default=(), max_length=MOST_ERRORS, fail_fast=True)
    """The oldest first."""
    calls: tuple[CallTimes, ...] = Field(default=(), max_length=MOST_TIMED, fail_fast=True)
    """The durations by method and tool; a former release sends none."""


@dataclass(frozen=True, slots=True, order=True)
class Sender:
    """The sender of stats, as the subject names it."""

    role: str
    """A service, or `worker`."""
    pool: str
    """The pool of a worker; empty for a service."""
    process: str


def service_stats_subject(role: Role, process: str) -> str:
    """The subject of the stats of an edge or a service."""
    return f"figures.{role.value}.{process}"


def pool_stats_subject(pool: str, process: str) -> str:
    """The subject of the stats of a worker."""
    return f"figures.pool.{pool}.{process}"


_SUBJECT: Final = re.compile(
    rf"figures\.(?:(?P<role>{'|'.join(Role)})|pool\.(?P<pool>[^.]{{1,80}}))\.(?P<process>[0-9a-f]{{16}})"
)


def sender_of(subject: str) -> Sender | None:
    """Read the sender from a subject; None for a subject of another form."""
    found = _SUBJECT.fullmatch(subject)
    return Sender(found["role"] or "worker", found["pool"] or "", found["process"]) if found else None
