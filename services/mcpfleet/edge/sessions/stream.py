"""The GET stream of a session: changes as clients of 2025 know them, without acknowledgment or result (L10)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from mcpfleet.contracts.sessions import Session
from mcpfleet.edge.sessions.known import Named
from mcpfleet.edge.streams.stream import Exit, Stream
from mcpfleet.views.view import View
from mcpfleet.wire.notices import LIST_CHANGED, Notice, resource_updated


class SessionStream(Stream):
    """One of a session's streams. Only the newest tells what changes (L13); the one before it waits for its turn."""

    __slots__ = ("_untold", "is_known", "is_muted", "name", "named")

    def __init__(self, name: str, named: Named, *args: Any, **options: Any) -> None:
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
        self._untold: frozenset[str] = frozenset()

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

    def end(self, why: Exit) -> None:
        """Have the stream end, and know what it has not told any more."""
        self._untold |= self._pending.keys()
        super().end(why)

    def catch_up(self, session: Session) -> None:
        """Tell what may have changed while no stream told it: lists that differ, and each URI, which has no number."""
        for kind in self.digests:
            if session.lists is not None and kind in session.lists:
                self.digests[kind] = bytes.fromhex(session.lists[kind])
        self.see(self.view)
        for uri in session.uris:
            self.offer(uri, resource_updated(uri))

    @property
    def known_lists(self) -> Mapping[str, str]:
        """What its client may know of the lists, once the stream has ended."""
        return {kind: "" if kind in self._untold else digest.hex() for kind, digest in self.digests.items()}

    @property
    def was_denied(self) -> bool:
        """Whether it ended because its client may not have it any more, and not because of its credential's age."""
        return self._exit is Exit.PERMISSION_ENDED and time.monotonic() < self.permission.expires

    def _opening(self) -> bytes:
        return b""

    def _telling(self, pending: Iterable[Notice]) -> bytes:
        return b"".join([notice.plain for notice in pending])

    def _closing(self) -> bytes:
        return b""


LISTS = frozenset(LIST_CHANGED)
