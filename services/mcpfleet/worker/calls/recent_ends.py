"""The newest ends of calls, kept for a while: an edge whose link was cut asks for them again."""

from __future__ import annotations

from collections import OrderedDict

from mcpfleet.worker.calls.table import Key
from mcpfleet.worker.frames import Ended


class RecentEnds:
    """The newest ends, within a number of bytes; the oldest go first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ends: OrderedDict[Key, tuple[float, Ended]] = OrderedDict()
        self._size = 0
        self._unfetched: set[Key] = set()

    def __len__(self) -> int:
        return len(self._ends)

    def keep(self, end: Ended, now: float) -> None:
        """Keep an end from now on; a second one of a call is dropped, and one larger than all the room."""
        if len(end.body) > self._limit or end.key in self._ends:
            return
        self._ends[end.key] = (now, end)
        self._size += len(end.body)
        while self._size > self._limit:
            self._forget_oldest()

    def get(self, key: Key) -> Ended | None:
        """The end of a call, if it is still kept."""
        kept = self._ends.get(key)
        return kept[1] if kept else None

    @property
    def are_fetched(self) -> bool:
        """Whether no result waits for its edge to fetch it."""
        return not self._unfetched

    def await_fetch(self, key: Key) -> None:
        """Note that the edge has been told where a result is, if that is still kept."""
        if key in self._ends:
            self._unfetched.add(key)

    def fetched(self, key: Key) -> None:
        """Note that the edge has a result, or wants it no more."""
        self._unfetched.discard(key)

    def forget_before(self, moment: float, proven_since: float) -> None:
        """Forget the ends that were kept before a moment (monotonic seconds).

        Those of before the link was proven count from then on, since nobody could ask for them.
        """
        while self._ends and max(next(iter(self._ends.values()))[0], proven_since) < moment:
            self._forget_oldest()

    def edges(self) -> set[str]:
        """The edges that may still ask."""
        return {key.edge for key in self._ends}

    def _forget_oldest(self) -> None:
        key, (_, end) = self._ends.popitem(last=False)
        self._unfetched.discard(key)
        self._size -= len(end.body)
