"""Authorization's verdicts, as an edge keeps them: each for its time, in a cache with a bound."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from mcpfleet.contracts.authorization import Admitted, RevokedName
from mcpfleet.contracts.principal import Principal

CacheKey: TypeAlias = tuple[str, bytes]
"""An endpoint's name, and a credential's digest; an empty digest where there is no credential."""


@dataclass(slots=True, eq=False)
class KeyStatus:
    """When authorization last confirmed a signing key, shared by all verdicts that rest on the key."""

    confirmed_at: float = -math.inf
    """Monotonic seconds."""
    oldest: float = math.inf
    """When the oldest verdict that may rest on the key was asked for (monotonic seconds)."""
    newest: float = -math.inf
    """The same of the newest verdict."""


UNCONFIRMED: Final = KeyStatus()
"""The status of verdicts that hold for their own time only."""


@dataclass(slots=True, eq=False)
class Verdict:
    """Authorization's answer about one credential at one endpoint."""

    admitted: Admitted
    expires: float
    """Monotonic seconds."""
    renewed_from: float = math.inf
    """From when on a request that uses the verdict has it renewed (monotonic seconds)."""
    names: frozenset[RevokedName] = frozenset()
    asked_at: float = -math.inf
    """When authorization was asked (monotonic seconds)."""
    sure_until: float = math.inf
    """Until when it holds without a confirmation of its key (monotonic seconds)."""
    key_status: KeyStatus = UNCONFIRMED
    confirmed_for: float = 0.0
    """Seconds that it holds after a confirmation of its key."""

    @property
    def principal(self) -> Principal:
        """The admitted caller; the verdict must not be a refusal."""
        assert self.admitted.principal is not None
        return self.admitted.principal

    def holds(self, now: float) -> bool:
        """Return whether a request may rely on it."""
        is_sure = now < self.sure_until or now < self.key_status.confirmed_at + self.confirmed_for
        return now < self.expires and is_sure

    @property
    def valid_until(self) -> float:
        """Until when the credential itself is valid, as far as its issuer says (monotonic seconds)."""
        good_for = self.admitted.good_for
        return min(self.expires, self.sure_until) if good_for is None else self.asked_at + good_for


class VerdictCache:
    """A bounded number of verdicts; the least recently used one goes first."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._verdicts: OrderedDict[CacheKey, Verdict] = OrderedDict()

    def get(self, key: CacheKey) -> Verdict | None:
        """Return a verdict, which counts as its use."""
        verdict = self._verdicts.get(key)
        if verdict is not None:
            self._verdicts.move_to_end(key)
        return verdict

    def put(self, key: CacheKey, verdict: Verdict) -> Verdict:
        """Keep a verdict, and return it."""
        self._verdicts[key] = verdict
        self._verdicts.move_to_end(key)
        if len(self._verdicts) > self._entries:
            self._verdicts.popitem(last=False)
        return verdict

    def forget(self, key: CacheKey) -> None:
        """Remove a verdict."""
        self._verdicts.pop(key, None)

    def drop(self, matches: Callable[[Verdict], bool]) -> None:
        """Remove the verdicts that match."""
        for key in [key for key, verdict in self._verdicts.items() if matches(verdict)]:
            del self._verdicts[key]

    def clear(self) -> None:
        """Remove all verdicts."""
        self._verdicts.clear()

    def values(self) -> Iterable[Verdict]:
        """Return all verdicts."""
        return self._verdicts.values()
