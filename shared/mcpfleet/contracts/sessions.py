"""The messages of sessions, which let every edge recognise a client of the revisions of 2025 (D11).

A session's id never crosses the bus: its digest names it, and it exists for its owner only.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.rpc import Rpc, ask
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.grants import Holder, NewGrant, Uri, UriGrant
from mcpfleet.contracts.manifest import digest_of

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Stream = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
"""The id of a GET stream: its edge's id, and then random digits."""
EDGE_DIGITS: Final = 16
"""Digits of a stream's id that name its edge."""
Level = Annotated[str, StringConstraints(pattern=r"^[a-z]{1,16}$")]

TOLD: Final = "00"
"""Stands behind the digest of a list whose change was told, in hexadecimal digits: so no list has this digest."""
MOST_CHANGES: Final = 4_096
"""URIs in one message."""
MOST_STREAMS: Final = 2
"""GET streams of a session; one more ends the oldest (N10)."""


def session_key(identifier: str) -> str:
    """Return the name of a session; its id belongs to the client alone."""
    return digest_of(identifier.encode())


class Session(Message):
    """The known state of a session."""

    revision: str = Field(max_length=16)
    """The revision that `initialize` agreed on, for the session's life."""
    client: dict[str, Any] = Field(default_factory=dict)
    """`clientInfo`, as it came."""
    capabilities: dict[str, Any] = Field(default_factory=dict)
    """The capabilities of the client."""
    log_level: Level | None = None
    """None if the client never set one."""
    uris: tuple[Uri, ...] = ()
    """The URIs that it subscribes to."""
    grants: tuple[UriGrant, ...] = ()
    """The same with their leases; empty from a service of the former release."""
    streams: tuple[Stream, ...] = Field((), max_length=MOST_STREAMS)
    """Its GET streams, the newest first, which hears of changes (L13)."""
    lists: dict[str, str] | None = None
    """For each kind of list, the digest that its client may know: from the session's start, or a stream's end."""


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
    """The session exists, for every edge."""


class ReadSession(Message):
    """A request names a session."""

    session: Digest
    owner: Digest
    holder: Holder | None = None
    """The owner as the request showed it: later credentials move the end of grants (X57)."""


class SessionRead(Message):
    """The session now."""

    session: Session | None = None
    """None for no session of this owner: unknown, ended and foreign ones look the same."""
    is_full: bool = False
    """Nothing was changed: it subscribes to the most URIs already."""


class ChangeSession(Message):
    """The changes to a session; absent members stay. Safe to repeat."""

    session: Digest
    owner: Digest
    log_level: Level | None = None
    subscribe: Uri | None = None
    grant: NewGrant | None = None
    """The decision by which the session subscribes; None from an edge of the former release."""
    unsubscribe: Uri | None = None
    opened: Stream | None = None
    """A GET stream that is the newest now."""
    closed: Stream | None = None
    """A GET stream that has ended."""
    lists: dict[str, str] | None = Field(None, max_length=8)
    """The digests of lists that the client may know, as the closed stream knew them. One with `TOLD` behind it was told
    to have changed, and is told no more until the client lists again (X59)."""
    lost: Stream | None = None
    """A GET stream whose edge has died: what it had not written is unknown, so all URIs may have changed."""
    by: Stream | None = None
    """The GET stream that has written."""
    written: dict[Uri, int] = Field(default={}, max_length=MOST_CHANGES)
    """The URIs whose changes were written whole, and the numbers of these changes."""
    dirty: tuple[Uri, ...] = Field(default=(), max_length=MOST_CHANGES, fail_fast=True)
    """The URIs that changed, and were not written."""


class EndSession(Message):
    """A session ends."""

    session: Digest
    owner: Digest


class SessionEnded(Message):
    """The session does not exist any more."""

    found: bool
    """It existed until now."""


BEGIN = Rpc("subscriptions.session.begin", BeginSession, SessionBegun, asked_by="edge", repeat=True)
READ = Rpc("subscriptions.session.read", ReadSession, SessionRead, asked_by="edge", repeat=True)
CHANGE = Rpc("subscriptions.session.change", ChangeSession, SessionRead, asked_by="edge", repeat=True)
END = Rpc("subscriptions.session.end", EndSession, SessionEnded, asked_by="edge", repeat=True)

CHANGED_SUBJECT: Final = "hint.session"
"""The subject on which subscriptions tells every edge that a session has changed or ended: `SessionChanged`."""


class SessionChanged(Message):
    """An edge's state of a session is old."""

    session: Digest
    ended: bool = False
    deleted: bool = False
    """Its owner has ended it, and wants no answer to running requests (L8)."""


CANCELLED_SUBJECT: Final = "session.cancelled"
"""The subject on which an edge tells all edges that a client cancels a request: `CallCancelled`."""


class CallCancelled(Message):
    """A client wants no answer to a request of its session, at whichever edge it runs (L7)."""

    session: Digest
    request: str | int | float
    """Its id, in the type in which it came."""


class GiveAnswer(Message):
    """A client's response to a request of the server, for the edge that waits for it (M81)."""

    session: Digest
    question: str = Field(pattern=r"^[0-9a-f]{16}-[0-9a-f]{32}$")
    """The id of the response, as the edge made it: its own id, and random digits."""
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class AnswerGiven(Message):
    """Whether somebody waited for it."""

    waited: bool


class WatchAgain(Message):
    """A session has other subscriptions now, and its newest GET stream is at the asked edge."""

    session: Digest


class WatchedAgain(Message):
    """The edge watches the session's subscriptions, as far as it has its stream."""

    streams: tuple[Stream, ...] = ()
    """The streams of the session at this edge, open or about to open."""


ANSWER = Rpc("session.{edge}.answer", GiveAnswer, AnswerGiven, asked_by="edge", repeat=True)
WATCH = Rpc("session.{edge}.watch", WatchAgain, WatchedAgain, asked_by="edge", repeat=True)
"""Each edge hears its own subject."""


class SessionsClient:
    """Asks about sessions for edges; methods raise `BusError`."""

    def __init__(self, bus: Bus, *, timeout: float = 2.0) -> None:
        self._bus = bus
        self._timeout = timeout

    async def begin(self, question: BeginSession) -> None:
        """Begin a session."""
        await ask(self._bus, BEGIN, question, timeout=self._timeout)

    async def read(self, session: str, owner: str, holder: Holder | None = None) -> Session | None:
        """Read a session; tell of its holder, if a request of the session came."""
        question = ReadSession(session=session, owner=owner, holder=holder)
        return (await ask(self._bus, READ, question, timeout=self._timeout)).session

    async def change(self, question: ChangeSession) -> SessionRead:
        """Change a session, and return it."""
        return await ask(self._bus, CHANGE, question, timeout=self._timeout)

    async def end(self, session: str, owner: str) -> bool:
        """End a session; return whether there was one."""
        return (await ask(self._bus, END, EndSession(session=session, owner=owner), timeout=self._timeout)).found

    async def watch(self, edge: str, session: str) -> tuple[str, ...]:
        """Make an edge watch the present subscriptions of a session; return the session's streams at that edge."""
        question = WatchAgain(session=session)
        return (await ask(self._bus, WATCH, question, timeout=self._timeout, edge=edge)).streams

    async def answer(self, edge: str, given: GiveAnswer) -> bool:
        """Pass a client's response to the edge that waits for it; return whether it did."""
        return (await ask(self._bus, ANSWER, given, timeout=self._timeout, edge=edge)).waited
