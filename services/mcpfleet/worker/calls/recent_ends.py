"""The newest ends of calls, kept for a while: an edge whose link was cut asks for them again."""

from __future__ import annotations

from collections import OrderedDict

from mcpfleet.worker.work import CallKey, Ended


class RecentEnds:
    """The newest ends, within a number of bytes; the oldest go first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ends: OrderedDict[CallKey, tuple[float, Ended]] = OrderedDict()
        self._size = 0
        self._unfetched: set[CallKey] = set()

    def __len__(self) -> int:
        return len(self._ends)

    def keep(self, key: CallKey, end: Ended, now: float) -> None:
        """Keep a call's end from now on; a second end of the call is dropped, and one larger than the limit."""
        if len(end.body) > self._limit or key in self._ends:
            return
        self._ends[key] = (now, end)
        self._size += len(end.body)
        while self._size > self._limit:
            self._forget_oldest()

    def get(self, key: CallKey) -> Ended | None:
        """The end of a call, if it is still kept."""
        kept = self._ends.get(key)
        return kept[1] if kept else None

    @property
    def are_fetched(self) -> bool:
        """Whether no result waits for its edge to fetch it."""
        return not self._unfetched

    def await_fetch(self, key: CallKey) -> None:
        """Note that the edge was told where a result is, if the result is still kept."""
        if key in self._ends:
            self._unfetched.add(key)

    def fetched(self, key: CallKey) -> None:
        """Note that the edge has a result, or does not want it any more."""
        self._unfetched.discard(key)

    def forget_before(self, moment: float, proven_since: float) -> None:
        """Forget the ends that were kept before a moment (monotonic seconds).

        An end that is older than the proof of the link counts from that proof on: nobody could ask for it before.
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
