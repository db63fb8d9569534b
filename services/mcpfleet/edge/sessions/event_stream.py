"""The GET stream of a session: changes as clients of 2025 know them, without acknowledgment or result (L10)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from mcpfleet.contracts.sessions import Session
from mcpfleet.edge.protocol.exchange import SessionRef
from mcpfleet.edge.streams.stream import Exit, Stream
from mcpfleet.views.view import View
from mcpfleet.wire.filter import ListKind
from mcpfleet.wire.notices import LIST_CHANGED, Notice

LISTS: Final = frozenset(LIST_CHANGED)


class SessionStream(Stream):
    """One of a session's streams. Only the newest tells what changes (L13); the one before it waits for its turn."""

    __slots__ = ("_sending", "is_known", "is_muted", "known", "name", "named")

    def __init__(self, name: str, named: SessionRef, *args: Any, **options: Any) -> None:
        """Describe a stream.

        Args:
            name: its own id.
            named: its session.
            args: as of any stream.
            options: as of any stream.
        """
        super().__init__(*args, **options)
        self.name = name
        self.named = named
        self.is_known = False
        """The session lists it, so that it ends when the session does not any more."""
        self.is_muted = False
        self.known: dict[ListKind, str] = {kind: digest.hex() for kind, digest in self.digests.items()}
        """By each list's kind the digest of what its client was told of; what waits to be told, it does not know."""
        self._sending: dict[ListKind, str] = {}

    def offer(self, key: str, notice: Notice) -> None:
        """Have a change told, unless another stream of the session tells it."""
        if not self.is_muted:
            super().offer(key, notice)

    def see(self, view: View) -> None:
        """Take what the caller sees; which lists differ is found when the stream's turn comes."""
        if self.is_muted:
            self.view = view
        else:
            super().see(view)

    def go_on_from(self, session: Session) -> None:
        """Tell of the lists that differ from what the client knew as the session began, or its last stream ended."""
        if session.lists is not None:
            self.known |= {kind: session.lists.get(kind, "") for kind in self.known}
            self.digests |= {kind: bytes.fromhex(digest) for kind, digest in self.known.items()}
        self.see(self.view)

    @property
    def was_denied(self) -> bool:
        """Whether it ended because its client may not have it any more, and not because of its credential's age."""
        return self._exit is Exit.PERMISSION_ENDED and time.monotonic() < self.permission.expires

    def _opening(self) -> bytes:
        return b""

    def _telling(self, pending: Iterable[Notice]) -> bytes:
        told = list(pending)
        self._sending = {
            kind: digest.hex() for kind, digest in self.digests.items() if LIST_CHANGED[kind] in told
        }  # as they are now: what a client reads after it has heard of a change is no older
        return b"".join([notice.plain for notice in told])

    async def _send(self, data: bytes) -> None:
        await super()._send(data)
        self.known |= self._sending
        self._sending = {}

    def _closing(self) -> bytes:
        return b""
