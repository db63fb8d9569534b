"""For how long a service has listened without a gap: only that silence counts against a process that it watches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Vigil:
    """Grows while the link to NATS is proven, the store answers and this process runs; starts afresh after a gap."""

    longest_gap: float
    """Seconds between two looks beyond which this process itself was not running."""
    since: float | None = None
    last: float | None = None

    def look(self, now: float, link_since: float | None) -> float:
        """Say for how many seconds up to now nothing kept us from hearing others.

        Args:
            now: monotonic seconds.
            link_since: since when the link to NATS has been proven without a gap; none where it is not proven now.
        """
        slept = self.last is not None and now - self.last > self.longest_gap
        self.last = now
        if link_since is None:
            self.since = None
            return 0.0
        if slept or self.since is None:
            self.since = now
        self.since = max(self.since, link_since)
        return now - self.since

    def interrupt(self) -> None:
        """The store did not answer: what others said meanwhile was not kept."""
        self.since = None
