"""The GET stream of a session: changes in the form of 2025, without acknowledgment and without a result (L10).

Subscriptions has a dirty bit of each URI and list of a session. It is set while a change was not told. The stream takes
the bits when it opens, and keeps those of later changes itself, until it has written them whole (X59).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final, Literal, NamedTuple

from mcpfleet.contracts.sessions import TOLD, Session
from mcpfleet.edge.protocol.exchange import Exchange, SessionRef
from mcpfleet.edge.streams.lease import StreamLease
from mcpfleet.edge.streams.stream import Exit, Stream, StreamBounds
from mcpfleet.views.view import View
from mcpfleet.wire.filter import Filter, ListKind
from mcpfleet.wire.notices import LIST_CHANGED, Notice

LISTS: Final = frozenset(LIST_CHANGED)
UPDATES: Final = "updates"
"""The family of a GET stream that has the session's URIs; the others are kinds of lists (X58)."""
_DIGITS: Final = 64
"""Hexadecimal digits of a list's digest; one whose change was told has `TOLD` behind them."""


class StreamNews(NamedTuple):
    """The results of a stream's writing that its session must hear."""

    written: dict[str, int]
    """The marked URIs whose changes were written whole, with the numbers of these changes."""
    lists: dict[str, str]
    """The digests that the client may know, of the lists whose changes were written, or were taken back."""


class SessionStream(Stream):
    """One of a session's streams. Only the newest sends changes (L13); the one before it is muted until its turn."""

    __slots__ = (
        "_bits",
        "_given_up",
        "_leases",
        "_noted",
        "_numbers",
        "_reporting",
        "_unheard",
        "_waits_for_lease",
        "is_listed",
        "is_muted",
        "known_lists",
        "name",
        "on_lapse",
        "on_news",
        "policy",
        "ref",
    )  # fmt: skip

    kind: ClassVar[Literal["listen", "session"]] = "session"

    def __init__(
        self,
        name: str,
        ref: SessionRef,
        exchange: Exchange,
        *,
        lease: StreamLease,
        honoured: Filter,
        bounds: StreamBounds,
    ) -> None:
        """Prepare a stream.

        Args:
            name: its own id.
            ref: its session.
            exchange: the GET request.
            lease: lets the stream go on.
            honoured: what the session subscribes to.
            bounds: from the settings.
        """
        super().__init__(exchange, b"", lease=lease, honoured=honoured, bounds=bounds)
        self.name = name
        self.ref = ref
        self.is_listed = False
        """The session lists the stream, which ends once the session lists it no more."""
        self.is_muted = False
        self.known_lists: dict[ListKind, str] = {kind: digest.hex() for kind, digest in self.digests.items()}
        """By kinds of lists, the digest that the client may know; with `TOLD` behind it once its change was told."""
        self.on_news: Callable[[], None] = _nothing
        """Called once there is news for the session."""
        self.on_lapse: Callable[[], None] = _nothing
        """Called where a URI has changed whose lease has lapsed here."""
        self.policy: Callable[[], int] = _none_yet
        """Returns the newest change of policy: a URI that was decided before it waits for another decision (X52)."""
        self._numbers: dict[str, int] = {}
        """The newest change of policy that the decision about each URI includes."""
        self._bits: dict[str, int] = {}
        """The URIs whose changes are marked in the session, and the numbers of these changes."""
        self._leases: dict[str, float] = {}
        """Monotonic seconds until which each URI may be told of, for those that have a lease."""
        self._waits_for_lease: set[str] = set()
        """The URIs that have changed, and whose leases have lapsed."""
        self._reporting: dict[str, int] = {}
        """The marked URIs whose changes were sent, and were not reported yet."""
        self._noted: set[ListKind] = set()
        """The lists whose digests in `known_lists` were not reported yet."""
        self._given_up: set[str] = set()
        """The URIs whose changes this stream leaves to another one, since it has ended or is muted."""
        self._unheard: frozenset[str] = frozenset()
        """The URIs of the session that the operator's policy keeps from this stream: each may have changed."""

    # -- what it may hear ---------------------------------------------------------------------------------------------

    @property
    def allowed(self) -> Filter:
        """The part of what it honours that the operator's policy allows now, by its families (X58)."""
        if self.lease.allowed is None:
            return self.honoured
        uris = self.honoured.uris if self.hears_updates else ()
        return Filter(self.honoured.lists & self.lease.allowed.lists, uris)

    @property
    def hears_updates(self) -> bool:
        """Whether it may hear of the session's URIs."""
        return self.lease.allowed is None or UPDATES in self.lease.allowed.lists

    def give_up(self, keys: Iterable[str]) -> None:
        """Hear no more of lists and URIs; a later stream that may hear of the URIs tells that they may have changed."""
        keys = list(keys)
        super().give_up(keys)
        self._unheard |= frozenset(keys) - LISTS

    # -- changes ------------------------------------------------------------------------------------------------------

    def offer(self, key: str, notice: Notice) -> None:
        """Queue a change, unless another stream of the session sends it, or the client was told and has not listed."""
        if key in LIST_CHANGED:
            if not self.is_muted and not _was_told(self.known_lists.get(key)):  # type: ignore[call-overload]  # a kind
                super().offer(key, notice)
        elif self._exit is not None or self.is_muted:
            self._given_up.add(key)
        elif self._has_lapsed(key):
            self._waits_for_lease.add(key)
            self.on_lapse()
        else:
            super().offer(key, notice)

    def _has_lapsed(self, uri: str) -> bool:
        if time.monotonic() >= self._leases.get(uri, math.inf):
            return True
        return self._numbers.get(uri, math.inf) < self.policy()

    def see(self, view: View) -> None:
        """Take the caller's newest view; a muted stream compares lists when its turn comes."""
        if self.is_muted:
            self.view = view
        else:
            super().see(view)

    def take_lists(self, session: Session) -> None:
        """Queue a change for each list that differs from what the client knows, by the session (L13).

        A list whose change was told waits until the client has listed again (X59).
        """
        known = session.lists
        for kind in self.digests.keys() - self._noted if known is not None else ():
            assert known is not None
            digest = self.known_lists[kind] = known.get(kind, "")
            told = _was_told(digest)
            self.digests[kind] = self.view.list_digest(kind) if told else bytes.fromhex(digest)
        self.see(self.view)

    def take_grants(self, session: Session) -> list[str]:
        """Take the leases of a session's URIs, and return the URIs of which a change waits to be sent."""
        now = time.monotonic()
        self._leases = {grant.uri: now + grant.lasts for grant in session.grants if grant.lasts is not None}
        self._numbers = {grant.uri: grant.number for grant in session.grants if grant.number is not None}
        marked = {grant.uri: grant.dirty for grant in session.grants if grant.dirty}
        fresh = [uri for uri, number in marked.items() if self._reporting.get(uri) != number]
        self._bits = {uri: marked[uri] for uri in fresh}
        renewed = {uri for uri in self._waits_for_lease if not self._has_lapsed(uri)}
        self._waits_for_lease -= renewed
        self._waits_for_lease &= self._leases.keys()
        return list({*fresh, *(renewed & {grant.uri for grant in session.grants})})

    def mute(self) -> None:
        """Send no changes any more, and leave those that wait to the session's other stream."""
        self.is_muted = True
        self._leave_rest()
        self._pending.clear()

    def end(self, why: Exit) -> None:
        """End the stream; the changes that wait are left to the session's next one."""
        if self._exit is None:
            self._leave_rest()
        super().end(why)

    def _leave_rest(self) -> None:
        self._given_up |= {key for key in self._pending if key not in LIST_CHANGED} | self._waits_for_lease
        self._waits_for_lease.clear()

    # -- what the session hears ---------------------------------------------------------------------------------------

    def news(self) -> StreamNews:
        """Return what was written whole, and was not reported yet."""
        half = self.grant.half_written()
        written = {uri: number for uri, number in self._reporting.items() if uri not in half}
        return StreamNews(written, {kind: self.known_lists[kind] for kind in self._noted if kind not in half})

    def reported(self, news: StreamNews) -> None:
        """Note that the session has heard the news."""
        for uri, number in news.written.items():
            if self._reporting.get(uri) == number:
                del self._reporting[uri]
        self._noted -= {kind for kind in self._noted if news.lists.get(kind) == self.known_lists[kind]}

    def take_left(self) -> list[str]:
        """Return the URIs that changed without being written, which the session has not marked; each once."""
        half = self.grant.half_written().keys() - LISTS if self._exit is not None else set()
        left, self._given_up = self._given_up | half | self._unheard, set()
        self._unheard = frozenset()
        return [uri for uri in left if uri not in self._bits]

    @property
    def was_denied(self) -> bool:
        """Whether it ended by a refusal, and not by the age of its credential."""
        return self._exit is Exit.LEASE_ENDED and time.monotonic() < self.lease.expires

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _opening(self) -> bytes:
        return b""

    def _changes(self, pending: Iterable[Notice]) -> bytes:
        return b"".join([notice.plain for notice in pending])

    async def _send_changes(self, pending: dict[str, Notice]) -> None:
        for uri in [key for key in pending if self._has_lapsed(key)]:
            self._waits_for_lease.add(uri)
            del pending[uri]
            self.on_lapse()
        if not pending:
            return
        self._note_sent(pending)
        try:
            await super()._send_changes(pending)
        except BaseException:
            self._undo(pending)
            self._given_up |= pending.keys() - LISTS
            raise
        if self._reporting or self._noted:
            self.on_news()

    def _note_sent(self, pending: Mapping[str, Notice]) -> None:
        for key in pending:
            if key in self._bits:
                self._reporting[key] = self._bits.pop(key)
        for kind in LISTS.intersection(pending):
            # The digest of now: a client that lists after this change gets nothing older.
            self.known_lists[kind] = self.digests[kind].hex() + TOLD
            self._noted.add(kind)

    def _undo(self, unwritten: Mapping[str, Notice]) -> None:
        for key in unwritten:
            if key in self._reporting:
                self._bits[key] = self._reporting.pop(key)
        for kind in LISTS.intersection(unwritten):  # the next stream compares with nothing, and sends them
            self.known_lists[kind] = ""
            self._noted.add(kind)

    def _take_back(self, unwritten: dict[str, Notice]) -> None:
        self._undo(unwritten)
        if self._exit is not None:
            self._given_up |= unwritten.keys() - LISTS
        super()._take_back(unwritten)

    def _closing(self) -> bytes:
        return b""


def _was_told(digest: str | None) -> bool:
    return digest is not None and len(digest) > _DIGITS


def _nothing() -> None:
    pass


def _none_yet() -> int:
    return 0
