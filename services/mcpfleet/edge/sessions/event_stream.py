"""The GET stream of a session: changes in the form of 2025, without acknowledgment and without a result (L10)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import ClassVar, Final, Literal

from mcpfleet.contracts.sessions import Session
from mcpfleet.edge.protocol.exchange import Exchange, SessionRef
from mcpfleet.edge.streams.lease import StreamLease
from mcpfleet.edge.streams.stream import Exit, Stream, StreamBounds
from mcpfleet.views.view import View
from mcpfleet.wire.filter import Filter, ListKind
from mcpfleet.wire.notices import LIST_CHANGED, Notice

LISTS: Final = frozenset(LIST_CHANGED)


class SessionStream(Stream):
    """One of a session's streams. Only the newest sends changes (L13); the one before it is muted until its turn."""

    __slots__ = ("_sending", "is_listed", "is_muted", "name", "ref", "sent_lists")

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
        self.sent_lists: dict[ListKind, str] = {kind: digest.hex() for kind, digest in self.digests.items()}
        """By kinds of lists, the digest of the list at the last change that the client was sent."""
        self._sending: dict[ListKind, str] = {}

    def offer(self, key: str, notice: Notice) -> None:
        """Queue a change, unless another stream of the session sends it."""
        if not self.is_muted:
            super().offer(key, notice)

    def see(self, view: View) -> None:
        """Take the caller's newest view; a muted stream compares lists when its turn comes."""
        if self.is_muted:
            self.view = view
        else:
            super().see(view)

    def catch_up_lists(self, session: Session) -> None:
        """Queue a change for each list that has changed since the session began, or since its last stream ended."""
        if session.lists is not None:
            self.sent_lists |= {kind: session.lists.get(kind, "") for kind in self.sent_lists}
            self.digests |= {kind: bytes.fromhex(digest) for kind, digest in self.sent_lists.items()}
        self.see(self.view)

    @property
    def was_denied(self) -> bool:
        """Whether it ended by a refusal, and not by the age of its credential."""
        return self._exit is Exit.LEASE_ENDED and time.monotonic() < self.lease.expires

    def _opening(self) -> bytes:
        return b""

    def _changes(self, pending: Iterable[Notice]) -> bytes:
        notices = list(pending)
        # The digests of now: a client that reads a list after this change gets nothing older.
        self._sending = {kind: digest.hex() for kind, digest in self.digests.items() if LIST_CHANGED[kind] in notices}
        return b"".join([notice.plain for notice in notices])

    async def _send_changes(self, pending: dict[str, Notice]) -> None:
        await super()._send_changes(pending)
        self.sent_lists |= self._sending
        self._sending = {}

    def _take_back(self, unwritten: dict[str, Notice]) -> None:
        for kind in LISTS.intersection(unwritten):  # the next stream compares with nothing, and sends them
            self.sent_lists[kind] = ""
        super()._take_back(unwritten)

    def _closing(self) -> bytes:
        return b""
