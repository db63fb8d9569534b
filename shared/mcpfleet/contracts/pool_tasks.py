"""Durable tasks for workers: serve, defer, claim, extend, step, ask, settle, release; results to remember.

The holder of a task has its fence: the number that the claim gave. Every write names it. A fence that is no longer the
newest is refused, and the holder is told so (`lost`). It stops its work on the task, and writes nothing more for it.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from pydantic_core import to_json

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.rpc import Rpc, ask
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.manifest import MOST_DEFINITIONS, digest_of
from mcpfleet.contracts.tasks import (
    MOST_ANSWERS,
    PROCESS_PATTERN,
    TOOL_PATTERN,
    Digest,
    Key,
    KeyOutcome,
    NewTask,
    Once,
    Status,
    TaskId,
    Text,
    Words,
)

MOST_CLAIMED: Final = 100
"""Tasks that one claim takes."""
MOST_HELD: Final = 1_000
"""Tasks that one process holds."""
MOST_UNHEARD: Final = 64

ProcessId = Annotated[str, Field(pattern=PROCESS_PATTERN)]
Fence = Annotated[int, Field(ge=0)]
Reached = Annotated[float | None, Field(allow_inf_nan=False)]
ToolName = Annotated[str, Field(pattern=TOOL_PATTERN)]


class Defer(Message):
    """A worker makes a task of its running call, and goes on as the holder."""

    task: NewTask
    process: ProcessId
    once: Once | None = None
    """The call's reservation: its task is the first result from now on."""


class Deferred(Message):
    """The result of deferring."""

    outcome: KeyOutcome
    fence: int = 0
    lease: float = 0.0
    """Seconds from the asking until the lease ends."""


class ClaimTasks(Message):
    """A worker takes waiting tasks."""

    claim: Digest
    """The worker makes it, so that a claim without an answer can be given back (`Extend.unheard`)."""
    process: ProcessId
    definitions: tuple[Digest, ...] = Field(max_length=MOST_DEFINITIONS, fail_fast=True)
    """The definitions that it can run."""
    most: int = Field(ge=1, le=MOST_CLAIMED)
    held: int = Field(0, ge=0)
    """How many tasks it runs already; a task that must run alone goes to a worker that runs none."""


class Answered(Message):
    """A question that has its answer."""

    key: str
    digest: str
    """Names the question, as its asker gave it."""
    answer: str
    """The client's answer, as JSON text that an edge has checked."""


class Remembered(Message):
    """A step that has its result."""

    key: str
    result: str


class Claimed(Message):
    """A task that the worker holds from now on."""

    id: str
    fence: int
    definition: str
    name: str
    origin: str
    attempts: int
    """How many of its attempts have crashed or failed."""
    alone: bool = False
    """Two holders vanished: run no other task beside it, so that none goes with it. Calls go on there."""
    limit: float
    """Seconds until its run limit."""
    message: str | None = None
    steps: tuple[Remembered, ...] = ()
    answers: tuple[Answered, ...] = ()


class TasksClaimed(Message):
    """The tasks for the worker."""

    tasks: tuple[Claimed, ...] = ()
    lease: float = 0.0
    """Seconds from the asking until the leases end."""
    alone_waits: bool = False
    """A task waits for a worker that runs no other task."""


class TaskLease(Message):
    """A task that a worker runs."""

    id: TaskId
    fence: Fence
    message: Words | None = None
    """The newest status message; None leaves the former one."""
    progress: Reached = None
    """The progress that the message tells: a message with less progress than was reported before is not shown (K27)."""
    waits: bool = False
    """It waits for answers in place: bring back those that have come."""


class Extend(Message):
    """A worker is alive, and runs these tasks."""

    process: ProcessId
    tasks: tuple[TaskLease, ...] = Field(max_length=MOST_HELD, fail_fast=True)
    unheard: tuple[Digest, ...] = Field(default=(), max_length=MOST_UNHEARD)
    """Claims without an answer: their tasks are given back, and no attempt counts.

    A claim may still be on its way when its asker gives up, so name it in each message of the next 30 s.
    """


class Extended(Message):
    """The news about them for the worker."""

    lease: float
    lost: tuple[str, ...] = ()
    """Another holds or ended them: stop, and write nothing more."""
    ended: tuple[str, ...] = ()
    """Their holder has ended them, given them back, or let them wait for answers itself: nothing is lost."""
    cancelled: tuple[str, ...] = ()
    """Their clients want them to end: settle each, as cancelled unless the work has ended first."""
    answers: dict[str, tuple[Answered, ...]] = Field(default_factory=dict)
    """The answers of those that wait in place and have them all."""


class Step(Message):
    """A step has run, and its result is to be remembered."""

    id: TaskId
    fence: Fence
    key: Digest
    """The step's, from `step_key`."""
    name: Key
    result: Text


class Stepped(Message):
    """The step is remembered."""

    lost: bool = False
    ended: bool = False
    """The task is lost because its holder itself has ended it or given it back meanwhile."""
    result: str | None = None
    """The result that was remembered before under this key, if there is one: it counts."""


class TaskQuestion(Message):
    """A question to the task's client."""

    key: Key
    """Unique for the task's life: it never names another question (M70)."""
    digest: Digest
    """Names the question: asking it again under its key asks nothing, and returns its answer."""
    request: Text
    """`{"method":…,"params":…}`."""


class Ask(Message):
    """The handler needs answers of its client."""

    id: TaskId
    fence: Fence
    questions: tuple[TaskQuestion, ...] = Field(min_length=1, max_length=MOST_ANSWERS, fail_fast=True)
    keep: bool = False
    """Keep the lease, and wait in place; otherwise a task that must wait is no longer this worker's."""
    message: Words | None = None
    progress: Reached = None
    """As in `TaskLease`."""


class QuestionsAsked(Message):
    """Whether the answers are there."""

    lost: bool = False
    ended: bool = False
    """The task is lost because its holder itself has ended it or given it back meanwhile."""
    waiting: bool = False
    """An answer is missing: unless the lease is kept, the worker holds the task no more."""
    answers: tuple[Answered, ...] = ()
    clash: str | None = None
    """Nothing was asked: this key has asked another question."""


class Settle(Message):
    """The handler has ended."""

    id: TaskId
    fence: Fence
    status: Status
    """`completed`, `failed` or `cancelled`."""
    end: Text | None = None
    """The JSON text of the result (plain, or as a `KeptResult`), or of the error."""
    message: Words | None = None
    progress: Reached = None
    """As in `TaskLease`; a message without it is always shown."""
    failure: str | None = Field(None, pattern=r"^[a-z_]{1,32}$")
    """The kind of failure, for metrics: one of few words."""


class Settled(Message):
    """Whether the task has this end."""

    lost: bool = False


class Release(Message):
    """A worker gives a task back: it drains, or the attempt failed and may be tried again."""

    id: TaskId
    fence: Fence
    failed: Settle | None = None
    """The attempt failed and counts; this is the task's end if it was the last. None: it does not count."""
    after: float = Field(0.0, ge=0, le=86_400.0, allow_inf_nan=False)
    """Seconds before the next try, at least."""


class Released(Message):
    """The result of the release."""

    lost: bool = False
    status: Status | None = None


class Remember(Message):
    """A call under an idempotency key has its result; asked before the result leaves."""

    key: Digest
    fence: Fence
    result: Text | None = None
    """None if it is too large to be kept: repeats are told that it ended."""


class ResultKept(Message):
    """Whether this is the key's first result."""

    lost: bool = False
    """The reservation has ended, or is another's: nothing was kept, and the outcome is uncertain to its caller."""


class Serve(Message):
    """A worker tells, from time to time, which tools it runs tasks of."""

    process: ProcessId
    tools: dict[ToolName, Digest] = Field(max_length=MOST_DEFINITIONS)
    """The definition of each tool, by its name."""


class Served(Message):
    """The effect on tasks whose version of a tool is gone."""

    adopted: int = 0
    """The number of tasks that go on by this worker's version now."""


DEFER = Rpc("tasks.pool.{pool}.defer", Defer, Deferred, asked_by="pool-{pool}", repeat=True)
CLAIM = Rpc("tasks.pool.{pool}.claim", ClaimTasks, TasksClaimed, asked_by="pool-{pool}", repeat=False)
EXTEND = Rpc("tasks.pool.{pool}.extend", Extend, Extended, asked_by="pool-{pool}", repeat=True)
STEP = Rpc("tasks.pool.{pool}.step", Step, Stepped, asked_by="pool-{pool}", repeat=True)
ASK = Rpc("tasks.pool.{pool}.ask", Ask, QuestionsAsked, asked_by="pool-{pool}", repeat=True)
SETTLE = Rpc("tasks.pool.{pool}.settle", Settle, Settled, asked_by="pool-{pool}", repeat=True)
RELEASE = Rpc("tasks.pool.{pool}.release", Release, Released, asked_by="pool-{pool}", repeat=True)
REMEMBER = Rpc("tasks.pool.{pool}.remember", Remember, ResultKept, asked_by="pool-{pool}", repeat=True)
SERVE = Rpc("tasks.pool.{pool}.serve", Serve, Served, asked_by="pool-{pool}", repeat=True)


def step_key(task: str, name: str, arguments: str, ordinal: int) -> str:
    """Return the key of a step: the same over all attempts, so that a called system can use it for idempotency.

    Args:
        task: the task's id.
        name: the name of the step.
        arguments: the digest of its arguments: the same name with others is another step.
        ordinal: how many steps of the same name and arguments came before in this run.
    """
    return digest_of(to_json([task, name, arguments, ordinal]))


def work_subject(pool: str) -> str:
    """Return the subject that tells one of the pool's workers that a task waits; the body is its definition's digest.

    The message may be lost, or reach a worker that cannot run the task: workers also look by themselves.
    """
    return f"pool.{pool}.work"


def notify_subject(pool: str, process: str) -> str:
    """Return the subject that tells a worker to extend at once, for a cancel or answers; the body is the task's id."""
    return f"process.pool.{pool}.{process}.nudge"


class PoolTasksClient:
    """Asks the tasks service for a pool's workers; methods raise `BusError`."""

    def __init__(self, bus: Bus, pool: str, *, timeout: float = 5.0) -> None:
        self._bus = bus
        self._pool = pool
        self._timeout = timeout

    async def defer(self, message: Defer) -> Deferred:
        """Make a task, and hold it."""
        return await ask(self._bus, DEFER, message, timeout=self._timeout, pool=self._pool)

    async def claim(self, message: ClaimTasks) -> TasksClaimed:
        """Take tasks; a claim that ends `Unanswered` is named in the next `extend`, and not repeated."""
        return await ask(self._bus, CLAIM, message, timeout=self._timeout, pool=self._pool)

    async def extend(self, message: Extend) -> Extended:
        """Keep the leases."""
        return await ask(self._bus, EXTEND, message, timeout=self._timeout, pool=self._pool)

    async def step(self, message: Step) -> Stepped:
        """Remember a step's result."""
        return await ask(self._bus, STEP, message, timeout=self._timeout, pool=self._pool)

    async def ask(self, message: Ask) -> QuestionsAsked:
        """Ask the task's client."""
        return await ask(self._bus, ASK, message, timeout=self._timeout, pool=self._pool)

    async def settle(self, message: Settle) -> Settled:
        """End a task."""
        return await ask(self._bus, SETTLE, message, timeout=self._timeout, pool=self._pool)

    async def release(self, message: Release) -> Released:
        """Give a task back."""
        return await ask(self._bus, RELEASE, message, timeout=self._timeout, pool=self._pool)

    async def remember(self, message: Remember) -> ResultKept:
        """Keep the first result of an idempotency key."""
        return await ask(self._bus, REMEMBER, message, timeout=self._timeout, pool=self._pool)

    async def serve(self, message: Serve) -> Served:
        """Tell which tools the worker runs, and take on tasks whose version is gone."""
        return await ask(self._bus, SERVE, message, timeout=self._timeout, pool=self._pool)
