"""The messages of sessions, by which a client of the revisions of 2025 is the same one to every edge (D11).

A session's id never crosses the bus: it is named by its digest, and it is only there for its owner.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.rpc import Rpc, ask
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.manifest import LONGEST_NAME, digest_of

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Stream = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
"""A GET stream's own id: first its edge's, and then one by chance."""
EDGE_DIGITS: Final = 16
"""Of a stream's id, those that name its edge."""
Uri = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]
Level = Annotated[str, StringConstraints(pattern=r"^[a-z]{1,16}$")]

MOST_STREAMS: Final = 2
"""GET streams of a session; over it the oldest ends (N10)."""


def session_key(identifier: str) -> str:
    """Name a session by its id, which is the client's alone."""
    return digest_of(identifier.encode())


class Session(Message):
    """What is known of a session."""

    revision: str = Field(max_length=16)
    """Agreed on by `initialize`, for the session's life."""
    client: dict[str, Any] = Field(default_factory=dict)
    """`clientInfo`, as it came."""
    capabilities: dict[str, Any] = Field(default_factory=dict)
    """The client's."""
    log_level: Level | None = None
    """None where the client never set one."""
    uris: tuple[Uri, ...] = ()
    """What it subscribes to."""
    streams: tuple[Stream, ...] = Field((), max_length=MOST_STREAMS)
    """Its GET streams, the newest first: that one is told of changes (L13)."""
    lists: dict[str, str] | None = None
    """By each list's kind the digest of what its client may know of it: as the session began, or a stream ended."""


class BeginSession(Message):
    """A client has agreed on a revision."""

    session: Digest
    owner: Digest
    """Names the endpoint and the principal, without its token (D10)."""
    revision: str = Field(max_length=16)
    client: dict[str, Any] = Field(default_factory=dict)
    capabilities: dict[str, Any] = Field(default_factory=dict)
    lists: dict[str, str] | None = Field(None, max_length=8)


class SessionBegun(Message):
    """It is there, for every edge."""


class ReadSession(Message):
    """A request came in a session."""

    session: Digest
    owner: Digest


class SessionRead(Message):
    """What the session is now."""

    session: Session | None = None
    """None where there is none of this owner: unknown, ended and another's are the same (one neutral answer)."""
    is_full: bool = False
    """Nothing was changed: it subscribes to as many URIs as it may."""


class ChangeSession(Message):
    """What is to be another of a session; what is not given stays. Safe to repeat."""

    session: Digest
    owner: Digest
    log_level: Level | None = None
    subscribe: Uri | None = None
    unsubscribe: Uri | None = None
    opened: Stream | None = None
    """A GET stream that is its newest now."""
    closed: Stream | None = None
    """A GET stream that is gone."""
    lists: dict[str, str] | None = Field(None, max_length=8)
    """What the client may know of the lists, as the closed stream knew."""


class EndSession(Message):
    """A session is over."""

    session: Digest
    owner: Digest


class SessionEnded(Message):
    """It is not there any more."""

    found: bool
    """It was there until now."""


BEGIN = Rpc("subscriptions.session.begin", BeginSession, SessionBegun, asked_by="edge", repeat=True)
READ = Rpc("subscriptions.session.read", ReadSession, SessionRead, asked_by="edge", repeat=True)
CHANGE = Rpc("subscriptions.session.change", ChangeSession, SessionRead, asked_by="edge", repeat=True)
END = Rpc("subscriptions.session.end", EndSession, SessionEnded, asked_by="edge", repeat=True)

CHANGED_SUBJECT: Final = "hint.session"
"""Where subscriptions tells every edge that a session is another one now, or none: `SessionChanged`."""


class SessionChanged(Message):
    """What edges know of a session is old."""

    session: Digest
    ended: bool = False
    deleted: bool = False
    """Its owner has ended it, and wants no answer to what still runs (L8)."""


CANCELLED_SUBJECT: Final = "session.cancelled"
"""Where an edge tells all of them that a client takes a request back: `CallCancelled`."""


class CallCancelled(Message):
    """A client wants no answer to a request of its session, whichever edge it is at (L7)."""

    session: Digest
    request: str | int | float
    """Its id, in the type in which it came."""


class GiveAnswer(Message):
    """A client's response to a request of the server's, for the edge that waits for it (M81)."""

    session: Digest
    question: str = Field(pattern=r"^[0-9a-f]{16}-[0-9a-f]{32}$")
    """The response's id, as the question gave it: the edge's own, and one by chance."""
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class AnswerGiven(Message):
    """Whether somebody waited for it."""

    waited: bool


class WatchAgain(Message):
    """A session subscribes to something else now, and its newest GET stream is at the edge that is asked."""

    session: Digest


class WatchedAgain(Message):
    """The edge hears of what the session subscribes to, as far as it has its stream."""

    streams: tuple[Stream, ...] = ()
    """Those of the session that it has, open or about to be."""


ANSWER = Rpc("session.{edge}.answer", GiveAnswer, AnswerGiven, asked_by="edge", repeat=True)
WATCH = Rpc("session.{edge}.watch", WatchAgain, WatchedAgain, asked_by="edge", repeat=True)
"""Each edge hears its own of these."""


class SessionsClient:
    """What edges ask about sessions; methods raise `BusError`."""

    def __init__(self, bus: Bus, *, timeout: float = 2.0) -> None:
        self._bus = bus
        self._timeout = timeout

    async def begin(self, question: BeginSession) -> None:
        """Have a session begin."""
        await ask(self._bus, BEGIN, question, timeout=self._timeout)

    async def read(self, session: str, owner: str) -> Session | None:
        """Ask what a session is."""
        question = ReadSession(session=session, owner=owner)
        return (await ask(self._bus, READ, question, timeout=self._timeout)).session

    async def change(self, question: ChangeSession) -> SessionRead:
        """Change a session, and learn what it is then."""
        return await ask(self._bus, CHANGE, question, timeout=self._timeout)

    async def end(self, session: str, owner: str) -> bool:
        """End a session; returns whether there was one."""
        return (await ask(self._bus, END, EndSession(session=session, owner=owner), timeout=self._timeout)).found

    async def watch(self, edge: str, session: str) -> tuple[str, ...]:
        """Have an edge hear of what a session subscribes to now; returns the session's streams that it has."""
        question = WatchAgain(session=session)
        return (await ask(self._bus, WATCH, question, timeout=self._timeout, edge=edge)).streams

    async def answer(self, edge: str, given: GiveAnswer) -> bool:
        """Hand a client's response to the edge that waits for it; returns whether it did."""
        return (await ask(self._bus, ANSWER, given, timeout=self._timeout, edge=edge)).waited
