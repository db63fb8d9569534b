"""Durable tasks as edges ask for them: create, read, answer, cancel, heal, reserve.

What workers do with tasks is in `pool_tasks`, what operators see of them in `operator_tasks`. JSON travels as its exact
text, in a string: nobody between its writer and its reader parses it, and the store keeps every byte of it.
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
"""Characters of a question's or a step's name."""
MESSAGE_LENGTH: Final = 1000
"""Characters of a status message; whoever writes one cuts it."""
POLICY_LENGTH: Final = 16 * 1024
LONGEST_TEXT: Final = 8 * 1024 * 1024
"""Characters of any text; the service's settings bound each kind further."""
MOST_ANSWERS: Final = 256
"""Questions of one task that are answered, or asked, at once."""
MOST_GETS: Final = 32
"""Tasks that one question reads."""
_GETS_PATIENCE: Final = 0.005
"""Seconds that a reading waits for the one before it at most, to go with others."""
MOST_VERSIONS: Final = 1_000
"""Tasks whose versions one question asks for."""


def new_task_id() -> str:
    """Make a task's id, of nearly 192 random bits; commands would take one that began with `-` for an option."""
    while (made := secrets.token_urlsafe(24)).startswith("-"):
        pass
    return made


def is_task_id(text: str) -> bool:
    """Whether a text can be the id of one of our tasks."""
    return re.fullmatch(ID_PATTERN, text) is not None


def _storable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("a NUL character")
    return text


Text = Annotated[str, Field(max_length=LONGEST_TEXT), AfterValidator(_storable)]
"""What the store keeps as it is; PostgreSQL keeps no NUL, and JSON's own text has none."""
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
        """Whether nothing of the task changes any more."""
        return self not in (Status.WORKING, Status.INPUT_REQUIRED)


class Binding(Message):
    """To whom a task belongs: an endpoint and a principal without its token, so a refreshed token keeps it (D10)."""

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
    """An idempotency key, and which arguments it came with."""

    key: Digest
    """Of `once_key`."""
    arguments: Digest
    """Names the checked arguments, in one form of theirs."""
    fence: int | None = Field(None, ge=0)
    """The reservation that the call holds already, where it defers."""

    def reserved(self, fence: int) -> Reservation:
        """The same, once the call has its reservation."""
        return Reservation(key=self.key, arguments=self.arguments, fence=fence)


class Reservation(Once):
    """The idempotency key under which a call runs: its first result is kept before it leaves (D9)."""

    fence: int = Field(ge=0)


def once_key(binding: Binding, tool: str, key: str) -> str:
    """Name an idempotency key within its endpoint, principal and tool (D9)."""
    return digest_of(to_json([binding.digest, tool, key]))


class NewTask(Message):
    """A task that is to be made."""

    id: TaskId
    """Made by the maker: making it twice makes one."""
    binding: Binding
    pool: str = Field(pattern=POOL_PATTERN)
    definition: Digest
    """Which definition runs it: workers claim for the definitions that they have."""
    name: str = Field(pattern=TOOL_PATTERN)
    """The tool's, which outlives its definition."""
    origin: Text
    """What the task is made from, byte for byte (K6); only its maker's kind and workers read it."""
    policy: str | None = Field(None, max_length=POLICY_LENGTH)
    """What an edge needs at each reading beside the end, in a form of its own; comes back with each view."""
    run_limit: float = Field(3600.0, gt=0, le=LONGEST_RUN, allow_inf_nan=False)
    """Seconds that it may take from its first claim on, waiting for input apart."""
    retention: float = Field(3600.0, gt=0, le=LONGEST_RETENTION, allow_inf_nan=False)
    """Seconds that it can be read after its end."""
    poll_ms: int = Field(1000, gt=0, le=3_600_000)
    """What clients are told as `pollIntervalMs`."""
    attempts: int = Field(5, ge=1, le=100)
    """How many attempts that crashed or failed it may have."""
    message: Words | None = None
    """The first status message."""


class Create(Message):
    """An edge makes a task."""

    task: NewTask
    once: Once | None = None


class TaskView(Message):
    """A task as its owner may read it: what is in `tasks/get` and `notifications/tasks`, and what an edge goes by."""

    id: str
    status: Status
    version: int
    """Grows with each change that a reader can see."""
    created_at: float
    """Seconds since 1970 by the database's clock, as every moment here."""
    updated_at: float
    ttl_ms: int | None = None
    """From the creation to the end of the retention; none while the task has no end (D8)."""
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
    """The JSON text of the result (as it is, or as `kept_result`), where it is `completed`, or of the error."""


class KeyOutcome(StrEnum):
    """What became of a request to make a task, or to run under an idempotency key."""

    NEW = "new"
    """It is made, or may run."""
    REPEAT = "repeat"
    """The key has been used with these arguments: here is its task, or its result."""
    RUNNING = "running"
    """The first call with the key still runs: ask again."""
    MISMATCH = "mismatch"
    """The key has been used with other arguments."""
    UNCERTAIN = "uncertain"
    """The first call with the key may have run, and nobody knows; this stays so."""


class Created(Message):
    """What became of it; the task was read back as its owner, after it was committed (K5)."""

    outcome: KeyOutcome
    task: TaskView | None = None
    """Where it is new, or a repeat that is a task. A repeat without one has a result: reserve to get it."""


class Owned(Message):
    """A task as a caller names it."""

    id: TaskId
    binding: Binding


class Get(Owned):
    """An edge reads a task for a caller, and others for other callers."""

    others: tuple[Owned, ...] = Field((), max_length=MOST_GETS - 1)


class Found(Message):
    """The task; none where it is unknown, another's, or expired: all the same (K8)."""

    task: TaskView | None = None
    others: tuple[TaskView | None, ...] = ()
    """In their order, as many as fit into a message: the rest is to be asked for by itself."""


class Update(Message):
    """A client answers questions of a task; keys that are not outstanding are ignored (K9).

    Whether an answer fits its question has been checked by the edge, which read the question first: a key never means
    another question, so what it checked still holds.
    """

    id: TaskId
    binding: Binding
    answers: dict[Key, Text] = Field(max_length=MOST_ANSWERS)


class Updated(Message):
    """What was consumed."""

    known: bool
    consumed: tuple[str, ...] = ()


class CancelTask(Message):
    """A client wants a task to end (K10)."""

    id: TaskId
    binding: Binding


class TaskCancelled(Message):
    """The wish is kept, whatever wins."""

    known: bool
    status: Status | None = None


class VersionsWanted(Message):
    """An edge compares the tasks that its streams watch, since a hint may have been lost."""

    ids: tuple[TaskId, ...] = Field(max_length=MOST_VERSIONS, fail_fast=True)


class Versions(Message):
    """The versions of those that exist."""

    versions: dict[str, int] = Field(default_factory=dict)


class Reserve(Message):
    """An edge wants to run a call under an idempotency key, or says how its run ended without a result."""

    once: Once
    pool: str = Field(pattern=POOL_PATTERN)
    """Whose worker may remember the result."""
    lasts: float = Field(gt=0, le=86_400.0, allow_inf_nan=False)
    """Seconds until the call's deadline: without a result by then the outcome is uncertain."""
    holder: Digest
    """Made by the edge for this call: reserving twice is reserving once."""
    again_is_safe: bool = False
    """The tool says that an uncertain call may run again."""
    ended: Literal["not_run", "uncertain"] | None = None
    """The holder's call ended: it has not run (or only asked its caller), or may have."""


class Reserved(Message):
    """What to do with the call."""

    outcome: KeyOutcome
    fence: int = 0
    """Of the reservation, for the worker that remembers the result."""
    result: str | None = None
    """Of a repeat: the first result's JSON text; none where it was too large to be kept."""
    task: str | None = None
    """Of a repeat whose first call became a task: its id."""


CREATE = Rpc("tasks.create", Create, Created, asked_by="edge", repeat=True)
GET = Rpc("tasks.get", Get, Found, asked_by="edge", repeat=True)
UPDATE = Rpc("tasks.update", Update, Updated, asked_by="edge", repeat=True)
CANCEL = Rpc("tasks.cancel", CancelTask, TaskCancelled, asked_by="edge", repeat=True)
VERSIONS = Rpc("tasks.versions", VersionsWanted, Versions, asked_by="edge", repeat=True)
RESERVE = Rpc("tasks.reserve", Reserve, Reserved, asked_by="edge", repeat=True)


def task_key(task: str) -> str:
    """Name a task in the subject of its hint, where its id must not stand."""
    return digest_of(task.encode())


def task_hint_subject(key: str = "*") -> str:
    """Where it is hinted that a task has changed, by its `task_key`; the body is its version in decimal.

    That a reservation has ended is hinted likewise, by its `Once.key`; the body is empty.
    """
    return f"hint.task.{key}"


class TasksClient:
    """What edges ask of the tasks service; methods raise `BusError`."""

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
        """Read a task; none where there is none for this caller."""
        owned = Owned(id=task, binding=binding)
        found = None if is_recorded() else await self._gets.do(owned)
        return (found or await self._get(owned)).task

    async def _get(self, owned: Owned) -> Found:
        return await ask(self._bus, GET, Get(id=owned.id, binding=owned.binding), timeout=self._timeout)

    async def _get_all(self, wanted: Sequence[Owned]) -> list[Found | None]:
        """Read tasks by one question: of polls there are more than of all else. Of what does not fit there is None."""
        first, others = wanted[0], tuple(wanted[1:])
        question = Get(id=first.id, binding=first.binding, others=others)
        found = await ask(self._bus, GET, question, timeout=self._timeout)
        told = [Found(task=each) for each in (found.task, *found.others)]
        return [*told, *[None] * (len(wanted) - len(told))]  # a service of the release before knows the first alone

    async def update(self, task: str, binding: Binding, answers: dict[str, str]) -> Updated:
        """Answer outstanding questions; the edge has checked the answers."""
        question = Update(id=task, binding=binding, answers=answers)
        return await ask(self._bus, UPDATE, question, timeout=self._timeout)

    async def cancel(self, task: str, binding: Binding) -> TaskCancelled:
        """Have a task end, if it has not ended."""
        return await ask(self._bus, CANCEL, CancelTask(id=task, binding=binding), timeout=self._timeout)

    async def versions(self, tasks: Iterable[str]) -> dict[str, int]:
        """The versions of those tasks that exist."""
        ids = tuple(tasks)
        found: dict[str, int] = {}
        for start in range(0, len(ids), MOST_VERSIONS):
            question = VersionsWanted(ids=ids[start : start + MOST_VERSIONS])
            found |= (await ask(self._bus, VERSIONS, question, timeout=self._timeout)).versions
        return found

    async def reserve(self, request: Reserve) -> Reserved:
        """Take an idempotency key, or say how its call ended."""
        return await ask(self._bus, RESERVE, request, timeout=self._timeout)
