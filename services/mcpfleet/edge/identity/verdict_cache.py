"""Authorization's verdicts, as an edge keeps them: each for its time, within a bound."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from mcpfleet.contracts.authorization import Admitted, RevokedName

Key: TypeAlias = tuple[str, bytes]
"""An endpoint's name, and the digest of a credential; nothing where there is none."""


@dataclass(slots=True, eq=False)
class Hearing:
    """When authorization last said that a key is good, for all verdicts that go by the key."""

    at: float = -math.inf
    """Monotonic seconds."""
    oldest: float = math.inf
    """When the oldest verdict was asked for that may go by it."""
    newest: float = -math.inf
    """When the newest one was."""


UNHEARD: Final = Hearing()
"""That of verdicts which nothing but their own time keeps."""


@dataclass(slots=True, eq=False)
class Verdict:
    """What authorization said of a credential at an endpoint."""

    admitted: Admitted
    expires: float
    """Monotonic seconds."""
    renewed_from: float = math.inf
    """When somebody who uses it should have it renewed."""
    names: frozenset[RevokedName] = frozenset()
    asked: float = -math.inf
    """When (monotonic)."""
    sure_until: float = math.inf
    """Until when it holds whether or not its key is heard of (monotonic seconds)."""
    hearing: Hearing = UNHEARD
    patience: float = 0.0
    """Seconds for which it holds after its key was heard of."""

    def holds(self, now: float) -> bool:
        """Whether a request may go by it."""
        return now < self.expires and (now < self.sure_until or now < self.hearing.at + self.patience)

    @property
    def good_until(self) -> float:
        """Until when the credential itself is good, as far as its issuer says (monotonic seconds)."""
        good_for = self.admitted.good_for
        return min(self.expires, self.sure_until) if good_for is None else self.asked + good_for


class VerdictCache:
    """Verdicts within a bound; the least recently used go first."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._verdicts: OrderedDict[Key, Verdict] = OrderedDict()

    def get(self, key: Key) -> Verdict | None:
        """Find a verdict, which counts as its use."""
        verdict = self._verdicts.get(key)
        if verdict is not None:
            self._verdicts.move_to_end(key)
        return verdict

    def put(self, key: Key, verdict: Verdict) -> Verdict:
        """Keep a verdict, and return it."""
        self._verdicts[key] = verdict
        self._verdicts.move_to_end(key)
        if len(self._verdicts) > self._entries:
            self._verdicts.popitem(last=False)
        return verdict

    def forget(self, key: Key) -> None:
        """Keep it no more."""
        self._verdicts.pop(key, None)

    def drop(self, concerns: Callable[[Verdict], bool]) -> None:
        """Forget those that something concerns."""
        for key in [key for key, verdict in self._verdicts.items() if concerns(verdict)]:
            del self._verdicts[key]

    def clear(self) -> None:
        """Forget all of them."""
        self._verdicts.clear()

    def values(self) -> Iterable[Verdict]:
        """All that are kept."""
        return self._verdicts.values()
