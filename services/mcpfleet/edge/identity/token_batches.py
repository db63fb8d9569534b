"""A batch of tokens that this edge has reserved of a limit: what it may spend, and how many it asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import anyio

from mcpfleet.contracts.authorization import AHEAD_SHARE, TokensGranted, TokensWanted
from mcpfleet.contracts.manifest import digest_of

_HORIZON: Final = 5.0
"""Seconds of calls, at the recent rate, for which an edge reserves in advance."""
_SMALL: Final = 256
"""An edge may hold one in this many tokens of a limit for any caller: nobody misses so few."""
_MOST_SMALL: Final = 16
"""Tokens that an edge holds in this way, at most."""
_SHORTEST: Final = 0.05
"""Seconds over which a rate is measured, at least."""
_CHECKED_EVERY: Final = 1.0
"""Seconds after which a used-up window is asked about again: another edge may have given tokens back."""


class LimitKey(NamedTuple):
    """Names a limit, and the callers whose calls count together."""

    endpoint: str
    partition: str | None
    """None for all anonymous callers of the endpoint together."""
    kind: str
    name: str
    calls: int
    seconds: float

    @property
    def digest(self) -> str:
        """Its name in the store. The rate is part of it, so that windows of different lengths stay apart."""
        whose = ("anonymous", "") if self.partition is None else ("partition", self.partition)
        parts = (self.endpoint, *whose, self.kind, self.name, f"{self.calls}/{self.seconds:g}")
        return digest_of("\0".join(parts).encode())


@dataclass(slots=True, eq=False)
class TokenBatch:
    """This edge's tokens of a window, which end with the window. No method waits."""

    key: LimitKey
    digest: str = field(init=False)
    small: int = field(init=False)
    """Tokens that a caller who hardly calls may keep."""
    left: int = 0
    until: float = -math.inf
    """When the window ends: a little earlier than by the store's clock, or exactly then, and never later."""
    window: int | None = None
    """The window's number; None where it is unknown."""
    left_in_window: int = 0
    """Tokens that the window had left at the last answer."""
    renew_at: int = -1
    """The next tokens are reserved when so many are left; -1 for never."""
    full_until: float = -math.inf
    """When the next window begins, where this one is used up."""
    check_at: float = -math.inf
    """When a used-up window is asked about again."""
    unknown_until: float = -math.inf
    """When authorization is asked again after no answer."""
    waiting: int = 0
    """Calls that wait for a token."""
    answered: anyio.Event | None = None
    """Set for the waiting calls when the current question has ended."""
    is_due: bool = False
    """A question is due or on its way; there is one at a time."""
    giving: int = 0
    """Tokens to give back with the next question."""
    used: int = 0
    """Tokens that were ever spent."""
    used_in_window: int = 0
    used_before: int = 0
    """Tokens that were spent in the window before."""
    asked_at: float = -math.inf
    """When the last question was sent."""
    used_when_asked: int = 0
    used_when_checked: int = 0
    used_lately: int = 0
    """Tokens that were spent between the last two searches for surplus."""

    def __post_init__(self) -> None:
        self.digest = self.key.digest
        self.small = min(_MOST_SMALL, self.key.calls // _SMALL)

    def spend(self, now: float) -> bool:
        """Spend one token; return False where there is none."""
        if self.left <= 0 or now >= self.until:
            return False
        self.left -= 1
        self.used += 1
        self.used_in_window += 1
        return True

    def wants(self, now: float) -> TokensWanted | None:
        """Return what to ask for; None where nothing is needed. Tokens that are given back leave the batch."""
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
        """Return how many tokens to hold: for some seconds, but no more than were spent in this window and the last.

        So a burst that moves from edge to edge leaves no more tokens behind than it has spent.
        """
        rate = (self.used - self.used_when_asked) / max(_SHORTEST, now - self.asked_at)
        return max(self.small, min(int(rate * _HORIZON), self.used_in_window + self.used_before))

    def add(self, granted: TokensGranted, wanted: TokensWanted, asked_at: float, now: float) -> None:
        """Add granted tokens.

        Args:
            granted: the answer.
            wanted: the question.
            asked_at: when it was sent (monotonic seconds).
            now: monotonic seconds.
        """
        ends = asked_at + granted.rest
        if granted.window is None:  # a service of the release before, which numbers no windows
            self.until, self.window = min(self.until, ends) if self.left else ends, None
        elif granted.window != self.window:
            follows = self.window is not None and granted.window == self.window + 1
            self.used_before, self.used_in_window = self.used_in_window if follows else 0, 0
            self.left, self.until, self.window = 0, ends, granted.window
        else:
            self.until = max(self.until, ends)
        self.left += min(granted.granted, wanted.wanted + wanted.ahead)
        self.left_in_window = granted.left
        if granted.granted < wanted.wanted:
            self.full_until, self.check_at = ends, now + _CHECKED_EVERY
        elif wanted.wanted or granted.left:
            self.full_until = -math.inf
        self.renew_later()

    def renew_later(self) -> None:
        """Renew at half of what is left, where the window has enough tokens to grant some in advance."""
        self.renew_at = max(0, self.left - self.waiting) // 2 if self.left_in_window >= AHEAD_SHARE else -1

    def surplus(self) -> int:
        """Return how many tokens exceed what calls at the recent rate will spend; called once a second."""
        lately = self.used - self.used_when_checked
        keep = max(self.small, int(max(lately, self.used_lately) * _HORIZON))
        self.used_when_checked, self.used_lately = self.used, lately
        return self.left - keep if self.left > 2 * keep else 0
