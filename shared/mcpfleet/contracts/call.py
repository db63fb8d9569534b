"""A call between an edge and a worker: its body, its frames, its cancel, and its holders.

This is the hot path, so neither the call nor its frames are pydantic models: each is a header line and a raw body. A
call is published to `pool.<pool>.<definition>.call` and answered by frames on
`edge.<edge>.frames.<pool>.<call>.<kind>`. A call that did not run (`busy`, `expired`, no responders) is answered on
its reply subject.
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
"""Bytes of a message beside its arguments or result."""
WANTS_PROGRESS: Final = "p"
"""A call's flag: somebody listens to its progress."""
WANTS_ACCEPTED: Final = "a"
"""A call's flag: send `accepted` at once, since other calls wait behind this one."""
SANITIZES: Final = "s"
"""A call's flag: nothing runs but the sanitizer, for one reader of a task's result (K13)."""
OUTCOME_ONLY: Final = "o"
"""A call's flag: the caller needs only to know whether there is a result. It is sent empty, and its text is dropped."""
NO_FLAGS: Final = "-"


AUTHORED_ERROR: Final = "1 authored"
"""An error frame's line: the application chose the error, so HTTP answers 400."""
LOCALIZED: Final = "localized"
"""A word behind an error frame's line: the handler's texts are in the call's language."""
NOT_FOUND: Final = "1 not-found"
"""An error frame's line: nothing exists under this URI; the edge composes the error (M42)."""
BAD_PARAMS: Final = "1 bad-params"
"""An error frame's line: -32602 with HTTP 400. The body is the error object, of which the message counts."""
BAD_ARGUMENTS: Final = "1 bad-arguments"
"""A result frame's line: the arguments broke the tool's schema, which is a protocol error in 2025-06-18."""
REFUSED: Final = "1 refused"
"""An error frame's line, of a call for its outcome only: the handler refused on purpose, and did not fail."""
FAILED: Final = "1 failed"
"""A result frame's line: the tool failed, so the edge's span, metric and audit line tell it without reading the
result."""
UNDECIDED: Final = "1 undecided"
"""An error frame's line: the permit of the resource gave no answer, so nothing was read (X50)."""
NOT_BEGUN: Final = "1 not-begun"
"""A result frame's line: the tool failed before its handler began, so an idempotency key stays free."""
UNCERTAIN: Final = "1 uncertain"
"""A result frame's line: the tool may have run, and no repeat will hear how it ended, so its key is uncertain."""
LACKING: Final = "1 lacking"
"""An error frame's line, followed by names of questions: the handler asked something that this client cannot answer."""
NOT_RUN: Final = "1 not-run"
"""An error frame's line: the source behind the handler was not there, so nothing was sent to it: 503 (B7)."""
UPSTREAM: Final = "1 upstream"
"""An error frame's line: the error is the source's own, with any code (B3)."""
SCOPES_NEEDED: Final = "1 scopes"
"""An error frame's line, followed by scopes that the handler needs: the caller lacks one, and nothing was done."""
MOST_NEEDED: Final = 8
"""Scopes behind that line."""


@dataclass(frozen=True, slots=True)
class Deferring:
    """The data from which a worker makes a task of a running call; a call without it stays a call."""

    endpoint: str
    """The endpoint of the task, whose owner is the principal."""
    policy: str | None = None
    """Data for edges that read the task, in their own form."""

    @classmethod
    def read(cls, value: dict[str, Any]) -> Deferring:
        """Read the data from an edge; a later release may add members."""
        return cls(value["endpoint"], value.get("policy"))


class FrameKind(StrEnum):
    """The kind of a frame; the last token of its subject."""

    ACCEPTED = "accepted"
    PROGRESS = "progress"
    LOG = "log"
    """`{"level":…,"logger":…,"data":…}`, for a request that asked for its level or lower ones (M49)."""
    ASK = "ask"
    """`{"inputRequests":{…},"memory":{…}}`: the handler asks its caller, and runs again with the answers (M50)."""
    RESULT = "result"
    ERROR = "error"
    TASK = "task"
    """The call has become the task with this id, and goes on as that."""

    @property
    def is_end(self) -> bool:
        """Whether nothing follows it."""
        return self in (FrameKind.RESULT, FrameKind.ERROR, FrameKind.ASK, FrameKind.TASK)


@dataclass(frozen=True, slots=True)
class Completing:
    """The question to a completer: an argument of a prompt, or a variable of a template (M48)."""

    argument: str
    value: str
    """The text that the user has typed so far."""
    context: dict[str, str] = field(default_factory=dict)
    """The arguments that are settled already."""

    @classmethod
    def read(cls, value: dict[str, Any]) -> Completing:
        """Read the question from an edge; a later release may add members."""
        return cls(value["argument"], value["value"], value.get("context") or {})


@dataclass(slots=True)  # if it were frozen, a call would cost four microseconds more
class CallBody:
    """The input of a handler."""

    arguments: dict[str, Any]
    capabilities: dict[str, Any] = field(default_factory=dict)
    """The client's capabilities in this request (M25)."""
    client: dict[str, Any] = field(default_factory=dict)
    """`clientInfo` as the client gave it; it grants nothing."""
    principal: Principal = ANONYMOUS
    uri: str | None = None
    """The URI that is read, for a resource or a template."""
    completing: Completing | None = None
    """The question to a completer; None for the prompt or template itself."""
    cursor: str | None = None
    """The place where a lister goes on, in its own words."""
    answers: dict[str, Any] | None = None
    """`inputResponses` from the client, by the keys of the questions; unchecked."""
    memory: dict[str, Any] | None = None
    """The data of the handler's earlier rounds, from their `ask` frame; it was sealed meanwhile, so it is ours."""
    baggage: str | None = None
    """W3C baggage of the request, well formed (X75)."""
    log_level: str | None = None
    """The least level of log messages that the request wants."""
    deferring: Deferring | None = None
    """The handler may make a task of the call; the client can take its handle."""
    once: Reservation | None = None
    """The call runs under an idempotency key."""
    language: str | None = None
    """The language that the edge has chosen for the handler's texts; None for the pool's default."""
    showing: str | None = None
    """A task's kept result, to be cleared for the principal; nothing else runs (`SANITIZES`)."""
    meta: dict[str, Any] | None = None
    """The members of the request's `_meta` that are for a source: neither the protocol's nor ours (B4)."""

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
        """Read a body from an edge.

        Raises:
            ValueError: it is not a JSON object of this form.
        """
        return cls.of(from_json(body))

    @classmethod
    def of(cls, value: Any) -> CallBody:
        """Make a body of the JSON value from an edge.

        Raises:
            ValueError: it is not an object of this form.
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


_PLAIN: Final = ("uri", "cursor", "answers", "memory", "baggage", "log_level", "language", "showing", "meta")
_OPTIONAL: Final = (*_PLAIN, "completing", "deferring", "once")


def call_subject(pool: str, definition: str) -> str:
    """Return the subject of calls of a definition: one of the workers that declare it hears each."""
    return f"pool.{pool}.{definition}.call"


def reply_subject(edge: str, call: str) -> str:
    """Return the subject that tells that a call did not run."""
    return f"edge.{edge}.reply.{call}"


def replies_to_edge(subject: str) -> str:
    """Return the prefix of replies that only an edge can hear, for messages that only edges send."""
    del subject
    return "edge."


def frame_subject(edge: str, pool: str, call: str, kind: FrameKind) -> str:
    """Return the subject of a call's frame; NATS lets only the pool's workers send it."""
    return f"edge.{edge}.frames.{pool}.{call}.{kind}"


def edge_subjects(edge: str) -> str:
    """Return the one subscription of an edge for its calls, so that frames and `alive` keep their order."""
    return f"edge.{edge}.>"


def pool_cancel_subject(pool: str) -> str:
    """Return the subject of a cancel before a worker has accepted the call: every worker of the pool hears it."""
    return f"pool.{pool}.cancel"


def process_cancel_subject(pool: str, worker: str) -> str:
    """Return the subject of a cancel after a worker has accepted the call."""
    return f"process.pool.{pool}.{worker}.cancel"


def pull_subject(pool: str, worker: str) -> str:
    """Return the subject that fetches a result which is too large for its frame."""
    return f"process.pool.{pool}.{worker}.pull"


class Pull(Message):
    """An edge is ready to take a result; the answer's body is the result."""

    edge: str
    call: str


class Cancel(Message):
    """An edge no longer wants a call. Its loss does no harm, since `alive` finds missed cancels."""

    edge: str
    call: str


class Alive(Message):
    """A worker tells which of an edge's calls it holds, queued or running."""

    worker: str
    calls: tuple[str, ...] = Field(max_length=10_000)


class AliveAnswer(Message):
    """The edge's view of the same."""

    unwanted: tuple[str, ...] = ()
    """Calls that the edge does not want: they are cancelled."""
    missing: tuple[str, ...] = ()
    """Calls that the edge expects there and were not listed: their ends are sent again, or are gone."""


ALIVE = Rpc("edge.{edge}.alive.{pool}", Alive, AliveAnswer, asked_by="pool-{pool}", repeat=False)


class FetchSettings(Settings):
    """Settings that edges and workers share: a worker must keep a result for longer than its edge may take to fetch
    it."""

    result_wait: Seconds = Field(8.0, gt=0, description="the time that a large result may wait for memory of its edge")
    result_fetch: Seconds = Field(
        5.0, gt=0, description="the time that fetching a large result from its worker may take"
    )
