"""How often a call may send its progress: a bucket of a second's reports; of those beyond it the newest waits."""

from __future__ import annotations


class ProgressRate:
    """The bound of one call's reports."""

    __slots__ = ("_filled", "_rate", "_size", "_tokens", "waiting")

    def __init__(self, rate: float, now: float) -> None:
        """Start with a full bucket.

        Args:
            rate: reports a second, and the bucket's size, which is one at least.
            now: monotonic seconds.
        """
        self._rate = rate
        self._size = max(1.0, rate)
        self._tokens = self._size
        self._filled = now
        self.waiting: bytes | None = None
        """The newest report that was not sent."""

    def offer(self, body: bytes, now: float) -> bytes | None:
        """Take a report; returns it where it may be sent at once, else keeps it in place of one that waits."""
        self.waiting = body
        return self.due(now)

    def due(self, now: float) -> bytes | None:
        """Take out the report that waits, where it may be sent now."""
        if self.waiting is None:
            return None
        self._tokens = min(self._size, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        if self._tokens < 1:
            return None
        self._tokens -= 1
        body, self.waiting = self.waiting, None
        return body

    def last(self) -> bytes | None:
        """Take out the report that waits, since the call ends: the client sees how far it came."""
        body, self.waiting = self.waiting, None
        return body
