"""A call between an edge and a worker: its body, its frames, its cancel, and who still holds it.

The hot path, so neither the call nor its frames are pydantic: a header line and a raw body each. A call is published to
`pool.<pool>.<definition>.call` and answered by frames on `edge.<edge>.frames.<pool>.<call>.<kind>`; what did not run
(`busy`, `expired`, no responders) is answered on the call's reply subject.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pydantic import Field
from pydantic_core import from_json, to_json

from mcpfleet.bus.rpc import Rpc
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.contracts.tasks import Reservation
from mcpfleet.process.settings import Seconds, Settings

MESSAGE_ROOM: Final = 64 * 1024
"""Bytes that a message may have beside the arguments or the result in it."""
WANTS_PROGRESS: Final = "p"
"""A call's flag: somebody listens to its progress."""
WANTS_ACCEPTED: Final = "a"
"""A call's flag: say `accepted` at once, since others wait behind it for room."""
SHOWS: Final = "s"
"""A call's flag: nothing runs but the sanitizer, for one reader of a task's result (K13)."""
OUTCOME_ONLY: Final = "o"
"""A call's flag: its caller asks only whether there is a result; it is sent empty, and what it says is dropped."""
NO_FLAGS: Final = "-"


AUTHORED_ERROR: Final = "1 authored"
"""An error frame's line: the application chose the error, so HTTP says 400."""
NOT_FOUND: Final = "1 not-found"
"""An error frame's line: the target does not exist under this URI; the edge composes the error (M42)."""
BAD_PARAMS: Final = "1 bad-params"
"""An error frame's line: -32602, and HTTP says 400; the body is the error object, of which the message counts."""
BAD_ARGUMENTS: Final = "1 bad-arguments"
"""A result frame's line: the arguments broke the tool's schema, which 2025-06-18 knows as an error of the protocol."""
REFUSED: Final = "1 refused"
"""An error frame's line, of a call for its outcome only: the handler said no on purpose, and did not fail."""
FAILED: Final = "1 failed"
"""A result frame's line: the tool failed, so that the edge's span, metric and audit line say so without reading it."""
LACKING: Final = "1 lacking"
"""An error frame's line, followed by names of what may be asked: the handler asked what this client cannot answer."""


@dataclass(frozen=True, slots=True)
class Deferring:
    """What a worker needs to make a task of a call that it runs; a call without it stays a call."""

    endpoint: str
    """Whose task it will be, with the principal."""
    policy: str | None = None
    """For the edges that read the task, in their own form."""

    @classmethod
    def read(cls, value: dict[str, Any]) -> Deferring:
        """Read what an edge wrote; a later release may say more."""
        return cls(value["endpoint"], value.get("policy"))


class FrameKind(StrEnum):
    """What a frame says; the last token of its subject."""

    ACCEPTED = "accepted"
    PROGRESS = "progress"
    LOG = "log"
    """`{"level":…,"logger":…,"data":…}`, for a request that asked for its level or lower ones (M49)."""
    ASK = "ask"
    """`{"inputRequests":{…},"memory":{…}}`: the handler asks its caller, and runs again with the answers (M50)."""
    RESULT = "result"
    ERROR = "error"
    TASK = "task"
    """The call has become a task, whose id this is, and goes on as that."""

    @property
    def is_end(self) -> bool:
        """Whether nothing follows it."""
        return self in (FrameKind.RESULT, FrameKind.ERROR, FrameKind.ASK, FrameKind.TASK)


@dataclass(frozen=True, slots=True)
class Completing:
    """What a completer is asked: an argument of a prompt, or a variable of a template (M48)."""

    argument: str
    value: str
    """What the user has typed of it."""
    context: dict[str, str] = field(default_factory=dict)
    """The arguments that are settled already."""

    @classmethod
    def read(cls, value: dict[str, Any]) -> Completing:
        """Read what an edge wrote; a later release may say more."""
        return cls(value["argument"], value["value"], value.get("context") or {})


@dataclass(slots=True)  # frozen, it would cost a call four microseconds
class CallBody:
    """What a handler is called with."""

    arguments: dict[str, Any]
    capabilities: dict[str, Any] = field(default_factory=dict)
    """The client's, of this request (M25)."""
    client: dict[str, Any] = field(default_factory=dict)
    """`clientInfo` as the client gave it; it grants nothing."""
    principal: Principal = ANONYMOUS
    uri: str | None = None
    """The URI that is read, for a resource or a template."""
    completing: Completing | None = None
    """A completer is asked, and not the prompt or template itself."""
    cursor: str | None = None
    """Where a lister goes on; its own words."""
    answers: dict[str, Any] | None = None
    """`inputResponses` as the client sent them, by the questions' keys; nobody has checked them yet."""
    memory: dict[str, Any] | None = None
    """What the handler's earlier rounds left in their `ask` frame; it was sealed meanwhile, so it is ours."""
    log_level: str | None = None
    """The least level of log messages that the request wants to hear."""
    deferring: Deferring | None = None
    """The handler may make a task of the call; the client can take its handle."""
    once: Reservation | None = None
    """The call runs under an idempotency key."""
    showing: str | None = None
    """What a task has kept of its result: to be cleared for the principal, and nothing else is to run (`SHOWS`)."""

    def write(self) -> bytes:
        """Serialise for the bus; integers stay exact."""
        body: dict[str, Any] = {"arguments": self.arguments, "capabilities": self.capabilities, "client": self.client}
        if self.principal is not ANONYMOUS:
            body["principal"] = self.principal.model_dump()
        for name in _OPTIONAL:
            if (value := getattr(self, name)) is not None:
                body[name] = value
        return to_json(body)

    @classmethod
    def read(cls, body: bytes) -> CallBody:
        """Read what an edge wrote.

        Raises:
            ValueError: it is no JSON object of this form.
        """
        return cls.of(from_json(body))

    @classmethod
    def of(cls, value: Any) -> CallBody:
        """Make one of the JSON value that an edge wrote.

        Raises:
            ValueError: it is no object of this form.
        """
        if not isinstance(value, dict) or not isinstance(value.get("arguments"), dict):
            raise ValueError("a call's body must be an object with arguments")  # noqa: TRY004  # it is bad input
        principal, completing = value.get("principal"), value.get("completing")
        deferring, once = value.get("deferring"), value.get("once")
        return cls(
            value["arguments"],
            value.get("capabilities") or {},
            value.get("client") or {},
            Principal.model_validate(principal) if principal else ANONYMOUS,
            completing=Completing.read(completing) if completing else None,
            deferring=Deferring.read(deferring) if deferring else None,
            once=Reservation.model_validate(once) if once else None,
            **{name: value[name] for name in _PLAIN if name in value},
        )


_PLAIN: Final = ("uri", "cursor", "answers", "memory", "log_level", "showing")
_OPTIONAL: Final = (*_PLAIN, "completing", "deferring", "once")


def call_subject(pool: str, definition: str) -> str:
    """Where a call of a definition goes: to one of the workers that declare it."""
    return f"pool.{pool}.{definition}.call"


def reply_subject(edge: str, call: str) -> str:
    """Where a call is told that it did not run."""
    return f"edge.{edge}.reply.{call}"


def replies_to_edge(subject: str) -> str:
    """What a reply begins with that an edge alone can hear; for what only edges send."""
    del subject
    return "edge."


def frame_subject(edge: str, pool: str, call: str, kind: FrameKind) -> str:
    """Where a frame of a call goes; NATS lets only the pool's workers send it."""
    return f"edge.{edge}.frames.{pool}.{call}.{kind}"


def edge_subjects(edge: str) -> str:
    """All that an edge hears about its calls, by one subscription, so that frames and `alive` keep their order."""
    return f"edge.{edge}.>"


def pool_cancel_subject(pool: str) -> str:
    """Where a cancel goes while no worker has accepted the call: to every worker of the pool."""
    return f"pool.{pool}.cancel"


def process_cancel_subject(pool: str, worker: str) -> str:
    """Where a cancel goes once a worker has accepted the call."""
    return f"process.pool.{pool}.{worker}.cancel"


def pull_subject(pool: str, worker: str) -> str:
    """Where a result is fetched that is too large for its frame."""
    return f"process.pool.{pool}.{worker}.pull"


class Pull(Message):
    """An edge has room for a result; the answer's body is the result."""

    edge: str
    call: str


class Cancel(Message):
    """An edge no longer wants a call; lost without harm, since `alive` finds what a cancel missed."""

    edge: str
    call: str


class Alive(Message):
    """A worker says which of an edge's calls it holds, queued or running."""

    worker: str
    calls: tuple[str, ...] = Field(max_length=10_000)


class AliveAnswer(Message):
    """The edge's view of the same."""

    unwanted: tuple[str, ...] = ()
    """Calls that the edge does not want: they are cancelled."""
    missing: tuple[str, ...] = ()
    """Calls that the edge believes there and were not listed: their ends are sent again, or are gone."""


ALIVE = Rpc("edge.{edge}.alive.{pool}", Alive, AliveAnswer, asked_by="pool-{pool}", repeat=False)


class FetchSettings(Settings):
    """What edges and workers read alike: a worker must keep an end for longer than its edge may take to fetch it."""

    result_wait: Seconds = Field(8.0, gt=0, description="how long a large result may wait for memory of its edge")
    result_fetch: Seconds = Field(5.0, gt=0, description="how long fetching a large result from its worker may take")
