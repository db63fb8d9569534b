"""A limit's tokens that this edge has reserved: what it may spend, and how many it asks for. Nothing here waits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import anyio

from mcpfleet.contracts.authorization import AHEAD_SHARE, TokensGranted, TokensWanted
from mcpfleet.contracts.manifest import digest_of

_HORIZON: Final = 5.0
"""Seconds of calls, at the rate of late, for which an edge reserves ahead."""
_SMALL: Final = 256
"""One in so many tokens of a limit is too little to be missed: an edge may hold that much for any caller."""
_MOST_SMALL: Final = 16
"""Tokens that it holds so at most."""
_SHORTEST: Final = 0.05
"""Seconds that a rate is measured over at least."""
_CHECKED_EVERY: Final = 1.0
"""Seconds after which a full window is asked about again: another edge may have given tokens back."""


class LimitKey(NamedTuple):
    """Names a limit, and the callers whose calls count together."""

    endpoint: str
    partition: str | None
    """None is shared by all callers of the endpoint that have no name."""
    kind: str
    name: str
    calls: int
    seconds: float

    @property
    def digest(self) -> str:
        """Its name in the store; the rate is part of it, so that windows of different lengths are never mixed up."""
        whose = ("anonymous", "") if self.partition is None else ("partition", self.partition)
        parts = (self.endpoint, *whose, self.kind, self.name, f"{self.calls}/{self.seconds:g}")
        return digest_of("\0".join(parts).encode())


@dataclass(slots=True, eq=False)
class TokenBatch:
    """This edge's tokens of a window. A batch ends with its window, whatever is left of it."""

    key: LimitKey
    digest: str = field(init=False)
    small: int = field(init=False)
    """Tokens that may be held for a caller who hardly calls."""
    left: int = 0
    until: float = -math.inf
    """When the window ends. It may be a little earlier than the store's clock says, and never later."""
    window: int | None = None
    """Its number; none where nobody told it."""
    room: int = 0
    """Tokens that the window had left when it was asked about last."""
    renew_at: int = -1
    """The next tokens are reserved where no more than this is left; -1 is never."""
    full_until: float = -math.inf
    """When the next window begins, where this one has nothing left."""
    check_at: float = -math.inf
    """When a full window is asked about again."""
    unknown_until: float = -math.inf
    """When authorization is asked again, after it did not answer."""
    waiting: int = 0
    """Calls that wait for a token."""
    answered: anyio.Event | None = None
    """Set for those who wait when the question that is due, or on its way, has ended."""
    is_due: bool = False
    """Whether a question is due, or on its way. There is one at a time."""
    giving: int = 0
    """Tokens to give back with the next question."""
    used: int = 0
    """Tokens that were ever used."""
    used_in_window: int = 0
    used_before: int = 0
    """Those of the window before."""
    asked_at: float = -math.inf
    """When it was asked about last."""
    used_when_asked: int = 0
    used_when_looked: int = 0
    used_lately: int = 0
    """Between the last two looks."""

    def __post_init__(self) -> None:
        self.digest = self.key.digest
        self.small = min(_MOST_SMALL, self.key.calls // _SMALL)

    def spend(self, now: float) -> bool:
        """Use one token, if there is one."""
        if self.left <= 0 or now >= self.until:
            return False
        self.left -= 1
        self.used += 1
        self.used_in_window += 1
        return True

    def wants(self, now: float) -> TokensWanted | None:
        """Say what to ask for; none where nothing is needed any more. Tokens that go back are gone from here."""
        if now >= self.until:
            self.left = 0
        if self.waiting == 0 and self.giving:
            return self._give()
        self.giving = 0
        wanted = max(0, self.waiting - self.left)
        ahead = max(0, self._aim(now) + self.waiting - self.left - wanted)
        is_checked = self.full_until > now
        if not (wanted or ahead or is_checked):
            self.renew_later()
            return None
        self.asked_at, self.used_when_asked, self.renew_at = now, self.used, -1
        return self._item(wanted=wanted, ahead=0 if is_checked else ahead)

    def _give(self) -> TokensWanted | None:
        back, self.giving = min(self.giving, self.left), 0
        if not back or self.window is None:
            return None
        self.left -= back
        return self._item(back=back, window=self.window)

    def _item(self, **fields: int) -> TokensWanted:
        return TokensWanted(key=self.digest, limit=self.key.calls, seconds=self.key.seconds, **fields)

    def _aim(self, now: float) -> int:
        """Tokens to hold: some seconds of them, and no more than were used here in this window and the one before.

        So a burst that moves from edge to edge leaves no more behind than it has used.
        """
        rate = (self.used - self.used_when_asked) / max(_SHORTEST, now - self.asked_at)
        return max(self.small, min(int(rate * _HORIZON), self.used_in_window + self.used_before))

    def add(self, granted: TokensGranted, wanted: TokensWanted, asked: float, now: float) -> None:
        """Take what was granted.

        Args:
            granted: the answer.
            wanted: what was asked for.
            asked: when, by a clock of this process that never steps.
            now: by the same clock.
        """
        ends = asked + granted.rest
        if granted.window is None:  # a service of the release before, which tells no windows apart
            self.until, self.window = min(self.until, ends) if self.left else ends, None
        elif granted.window != self.window:
            follows = self.window is not None and granted.window == self.window + 1
            self.used_before, self.used_in_window = self.used_in_window if follows else 0, 0
            self.left, self.until, self.window = 0, ends, granted.window
        else:
            self.until = max(self.until, ends)
        self.left += min(granted.granted, wanted.wanted + wanted.ahead)
        self.room = granted.left
        if granted.granted < wanted.wanted:
            self.full_until, self.check_at = ends, now + _CHECKED_EVERY
        elif wanted.wanted or granted.left:
            self.full_until = -math.inf
        self.renew_later()

    def renew_later(self) -> None:
        """Renew at half of what is left, where the window has so much that something is granted ahead."""
        self.renew_at = max(0, self.left - self.waiting) // 2 if self.room >= AHEAD_SHARE else -1

    def surplus(self) -> int:
        """Tokens beyond what calls of late will use; looked at once a second."""
        lately = self.used - self.used_when_looked
        keep = max(self.small, int(max(lately, self.used_lately) * _HORIZON))
        self.used_when_looked, self.used_lately = self.used, lately
        return self.left - keep if self.left > 2 * keep else 0
