"""Durable tasks for edges: create, read, answer, cancel, compare, reserve.

`pool_tasks` has the messages of workers, `operator_tasks` those of operators. JSON travels as its exact text, in a
string: nobody between its writer and its reader parses it, and the store keeps every byte of it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import to_json

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.rpc import Rpc, ask
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.manifest import LONGEST_RETENTION, LONGEST_RUN, POOL_PATTERN, digest_of
from mcpfleet.contracts.principal import Principal
from mcpfleet.process.batches import Batches
from mcpfleet.telemetry.trace import is_recorded

ID_PATTERN: Final = r"^[A-Za-z0-9_-]{22,64}$"
"""A task's id: at least 128 random bits, safe in a header (M72)."""
DIGEST_PATTERN: Final = r"^[0-9a-f]{32}$"
PROCESS_PATTERN: Final = r"^[A-Za-z0-9_-]{1,64}$"
TOOL_PATTERN: Final = r"^[A-Za-z0-9_.-]{1,128}$"
KEY_LENGTH: Final = 256
"""Characters of the name of a question or a step."""
MESSAGE_LENGTH: Final = 1000
"""Characters of a status message; its writer cuts it."""
POLICY_LENGTH: Final = 16 * 1024
LONGEST_TEXT: Final = 8 * 1024 * 1024
"""Characters of any text; the service's settings bound each kind further."""
MOST_ANSWERS: Final = 256
"""Questions of one task that are asked or answered at once."""
MOST_GETS: Final = 32
"""Tasks that one question reads."""
_GETS_PATIENCE: Final = 0.005
"""Seconds that a read waits for the one before it at most, to go with others."""
MOST_VERSIONS: Final = 1_000
"""Tasks in one question for versions."""


def new_task_id() -> str:
    """Return a new task's id, of nearly 192 random bits; it never begins with `-`, which commands would take for an
    option."""
    while (made := secrets.token_urlsafe(24)).startswith("-"):
        pass
    return made


def is_task_id(text: str) -> bool:
    """Return whether a text can be the id of one of our tasks."""
    return re.fullmatch(ID_PATTERN, text) is not None


def _storable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("a NUL character")
    return text


Text = Annotated[str, Field(max_length=LONGEST_TEXT), AfterValidator(_storable)]
"""A text that the store keeps unchanged; PostgreSQL keeps no NUL, and JSON text has none."""
TaskId = Annotated[str, Field(pattern=ID_PATTERN)]
Digest = Annotated[str, Field(pattern=DIGEST_PATTERN)]
Key = Annotated[str, Field(min_length=1, max_length=KEY_LENGTH), AfterValidator(_storable)]
Words = Annotated[str, Field(max_length=MESSAGE_LENGTH), AfterValidator(_storable)]


class Status(StrEnum):
    """A task's state, as clients see it (K7)."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_end(self) -> bool:
        """Whether the task never changes again."""
        return self not in (Status.WORKING, Status.INPUT_REQUIRED)


class Binding(Message):
    """The owner of a task: an endpoint and a principal without its token, so a refreshed token keeps it (D10)."""

    endpoint: str = Field(pattern=POOL_PATTERN)
    subject: str | None = Field(None, max_length=4096)
    client: str | None = Field(None, max_length=4096)
    tenant: str | None = Field(None, max_length=4096)

    @classmethod
    def of(cls, endpoint: str, principal: Principal) -> Binding:
        """Bind to an admitted caller of an endpoint."""
        return cls(endpoint=endpoint, subject=principal.subject, client=principal.client, tenant=principal.tenant)

    @property
    def digest(self) -> str:
        """Its name in the store, which keeps no principal."""
        return digest_of(to_json([self.endpoint, self.subject, self.client, self.tenant]))


class Once(Message):
    """An idempotency key, and the arguments that came with it."""

    key: Digest
    """The result of `once_key`."""
    arguments: Digest
    """Names the checked arguments, in one form of theirs."""
    fence: int | None = Field(None, ge=0)
    """The reservation of a call that defers."""

    def reserved(self, fence: int) -> Reservation:
        """Return the same with the call's reservation."""
        return Reservation(key=self.key, arguments=self.arguments, fence=fence)


class Reservation(Once):
    """The idempotency key of a running call: its first result is kept before it leaves (D9)."""

    fence: int = Field(ge=0)


def once_key(binding: Binding, tool: str, key: str) -> str:
    """Return the name of an idempotency key within its endpoint, principal and tool (D9)."""
    return digest_of(to_json([binding.digest, tool, key]))


class NewTask(Message):
    """A task to be made."""

    id: TaskId
    """The maker chooses it: making it twice makes one."""
    binding: Binding
    pool: str = Field(pattern=POOL_PATTERN)
    definition: Digest
    """The definition that runs it: workers claim for the definitions that they have."""
    name: str = Field(pattern=TOOL_PATTERN)
    """The name of the tool, which outlives its definition."""
    origin: Text
    """The call that the task is made from, byte for byte (K6); only makers and workers read it."""
    policy: str | None = Field(None, max_length=POLICY_LENGTH)
    """Data that an edge needs at each read, in its own form; each view returns it."""
    run_limit: float = Field(3600.0, gt=0, le=LONGEST_RUN, allow_inf_nan=False)
    """Seconds that it may take from its first claim on, without the waits for input."""
    retention: float = Field(3600.0, gt=0, le=LONGEST_RETENTION, allow_inf_nan=False)
    """Seconds that it can be read after its end."""
    poll_ms: int = Field(1000, gt=0, le=3_600_000)
    """`pollIntervalMs` for clients."""
    attempts: int = Field(5, ge=1, le=100)
    """The most attempts that may crash or fail."""
    message: Words | None = None
    """The first status message."""


class Create(Message):
    """An edge makes a task."""

    task: NewTask
    once: Once | None = None


class TaskView(Message):
    """A task as its owner may read it: the members of `tasks/get` and `notifications/tasks`, and data for edges."""

    id: str
    status: Status
    version: int
    """Grows with each change that a reader can see."""
    created_at: float
    """Seconds since 1970 by the database's clock, as every moment here."""
    updated_at: float
    ttl_ms: int | None = None
    """From the creation to the end of the retention; None while the task has no end (D8)."""
    poll_ms: int
    endpoint: str
    pool: str
    definition: str
    name: str
    message: str | None = None
    policy: str | None = None
    requests: dict[str, str] = Field(default_factory=dict)
    """The outstanding questions' JSON texts by their keys, while it is `input_required`."""
    end: str | None = None
    """The JSON text of the result of a `completed` task (plain, or as a `KeptResult`), or of the error."""


class KeyOutcome(StrEnum):
    """The outcome of a request to make a task, or to run under an idempotency key."""

    NEW = "new"
    """The task is made, or the call may run."""
    REPEAT = "repeat"
    """The key was used with these arguments: here is its task, or its result."""
    RUNNING = "running"
    """The first call with the key still runs: ask again."""
    MISMATCH = "mismatch"
    """The key was used with other arguments."""
    UNCERTAIN = "uncertain"
    """The first call with the key may have run, and nobody knows; this never changes."""


class Created(Message):
    """The outcome; the task was read back as its owner, after its commit (K5)."""

    outcome: KeyOutcome
    task: TaskView | None = None
    """The task, if it is new, or a repeat that is a task. A repeat without one has a result: reserve to get it."""


class Owned(Message):
    """A task as a caller names it."""

    id: TaskId
    binding: Binding


class Get(Owned):
    """An edge reads a task for a caller, and others for other callers."""

    others: tuple[Owned, ...] = Field((), max_length=MOST_GETS - 1)


class Found(Message):
    """The task; None if it is unknown, another's or expired: all look the same (K8)."""

    task: TaskView | None = None
    others: tuple[TaskView | None, ...] = ()
    """In their order, as many as fit into a message; ask for the rest separately."""


class Update(Message):
    """A client answers questions of a task; keys that are not outstanding are ignored (K9).

    The edge has read each question and checked that the answer fits it. A key never names another question, so the
    check still holds.
    """

    id: TaskId
    binding: Binding
    answers: dict[Key, Text] = Field(max_length=MOST_ANSWERS)


class Updated(Message):
    """The answers that were consumed."""

    known: bool
    consumed: tuple[str, ...] = ()


class CancelTask(Message):
    """A client wants a task to end (K10)."""

    id: TaskId
    binding: Binding


class TaskCancelled(Message):
    """The cancel is kept, whichever end wins."""

    known: bool
    status: Status | None = None


class VersionsWanted(Message):
    """An edge compares the tasks that its streams watch, since a hint may be lost."""

    ids: tuple[TaskId, ...] = Field(max_length=MOST_VERSIONS, fail_fast=True)


class Versions(Message):
    """The versions of the existing ones."""

    versions: dict[str, int] = Field(default_factory=dict)


class Reserve(Message):
    """An edge wants to run a call under an idempotency key, or tells how its run ended without a result."""

    once: Once
    pool: str = Field(pattern=POOL_PATTERN)
    """The pool whose worker may remember the result."""
    lasts: float = Field(gt=0, le=86_400.0, allow_inf_nan=False)
    """Seconds until the call's deadline: without a result by then the outcome is uncertain."""
    holder: Digest
    """The edge makes it for this call: reserving twice reserves once."""
    again_is_safe: bool = False
    """The tool allows an uncertain call to run again."""
    ended: Literal["not_run", "uncertain"] | None = None
    """The holder's call ended: it did not run (or only asked its caller), or it may have run."""


class Reserved(Message):
    """The decision about a call under a key."""

    outcome: KeyOutcome
    fence: int = 0
    """The fence of the reservation, for the worker that remembers the result."""
    result: str | None = None
    """For a repeat: the JSON text of the first result; None if it was too large to be kept."""
    task: str | None = None
    """For a repeat whose first call became a task: its id."""


CREATE = Rpc("tasks.create", Create, Created, asked_by="edge", repeat=True)
GET = Rpc("tasks.get", Get, Found, asked_by="edge", repeat=True)
UPDATE = Rpc("tasks.update", Update, Updated, asked_by="edge", repeat=True)
CANCEL = Rpc("tasks.cancel", CancelTask, TaskCancelled, asked_by="edge", repeat=True)
VERSIONS = Rpc("tasks.versions", VersionsWanted, Versions, asked_by="edge", repeat=True)
RESERVE = Rpc("tasks.reserve", Reserve, Reserved, asked_by="edge", repeat=True)


def task_key(task: str) -> str:
    """Return the name of a task in the subject of its hint, which must not have its id."""
    return digest_of(task.encode())


def task_hint_subject(key: str = "*") -> str:
    """Return the subject of the hint that a task has changed, by its `task_key`; the body is its version in decimal.

    A hint with an `Once.key` tells that a reservation has ended; its body is empty.
    """
    return f"hint.task.{key}"


class TasksClient:
    """Asks the tasks service for edges; methods raise `BusError`."""

    def __init__(self, bus: Bus, *, timeout: float = 5.0) -> None:
        self._bus = bus
        self._timeout = timeout
        self._gets: Batches[Owned, Found | None] = Batches(
            self._get_all, MOST_GETS, spoils=BusError, patience=_GETS_PATIENCE
        )

    async def create(self, task: NewTask, once: Once | None = None) -> Created:
        """Make a task, and read it back as its owner."""
        return await ask(self._bus, CREATE, Create(task=task, once=once), timeout=self._timeout)

    async def get(self, task: str, binding: Binding) -> TaskView | None:
        """Read a task; None if there is none for this caller."""
        owned = Owned(id=task, binding=binding)
        found = None if is_recorded() else await self._gets.do(owned)
        return (found or await self._get(owned)).task

    async def _get(self, owned: Owned) -> Found:
        return await ask(self._bus, GET, Get(id=owned.id, binding=owned.binding), timeout=self._timeout)

    async def _get_all(self, wanted: Sequence[Owned]) -> list[Found | None]:
        """Read tasks by one question, since polls outnumber all other questions. A task that does not fit is None."""
        first, others = wanted[0], tuple(wanted[1:])
        question = Get(id=first.id, binding=first.binding, others=others)
        found = await ask(self._bus, GET, question, timeout=self._timeout)
        told = [Found(task=each) for each in (found.task, *found.others)]
        return [*told, *[None] * (len(wanted) - len(told))]  # a service of the former release knows the first alone

    async def update(self, task: str, binding: Binding, answers: dict[str, str]) -> Updated:
        """Answer outstanding questions; the edge has checked the answers."""
        question = Update(id=task, binding=binding, answers=answers)
        return await ask(self._bus, UPDATE, question, timeout=self._timeout)

    async def cancel(self, task: str, binding: Binding) -> TaskCancelled:
        """End a task, if it has not ended."""
        return await ask(self._bus, CANCEL, CancelTask(id=task, binding=binding), timeout=self._timeout)

    async def versions(self, tasks: Iterable[str]) -> dict[str, int]:
        """Return the versions of the existing tasks."""
        ids = tuple(tasks)
        found: dict[str, int] = {}
        for start in range(0, len(ids), MOST_VERSIONS):
            question = VersionsWanted(ids=ids[start : start + MOST_VERSIONS])
            found |= (await ask(self._bus, VERSIONS, question, timeout=self._timeout)).versions
        return found

    async def reserve(self, request: Reserve) -> Reserved:
        """Reserve an idempotency key, or tell how its call ended."""
        return await ask(self._bus, RESERVE, request, timeout=self._timeout)
