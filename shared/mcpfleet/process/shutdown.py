"""The record of a process's end: its work since the first signal, and what it left behind (X72)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from structlog.typing import FilteringBoundLogger

MOST_RESIDUAL: Final = 100
"""Entries of `residual` in a record; the oldest stand first, and `more` counts the rest."""
BUS: Final = "bus drain"
STORE: Final = "store"
LEASES: Final = "leases"
OBSERVERS: Final = "observers"


class Residual(NamedTuple):
    """Something that was still there when the process stopped waiting for it."""

    kind: str
    """`call`, `task`, `request`, `stream`, `question` or `phase`."""
    name: str
    age: float
    """Seconds since it began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """The end of a process, as it was when its service ended; later exits change nothing."""

    role: str
    """The service's name."""
    id: str
    """The process's id."""
    cause: str
    """The cause of its end: a signal, a second one, the last deadline, its own end, or a failure."""
    phases: Mapping[str, float]
    """Seconds of each phase, in their order."""
    calls_finished: int = 0
    """Calls, or questions to a service, that ended by themselves since it was told to stop."""
    calls_cancelled: int = 0
    """Calls that their clients gave up since then."""
    calls_cut: int = 0
    """Calls that it ended without their result: they may have run."""
    streams: Mapping[str, int] = field(default_factory=dict)
    """Streams that ended since then, by reason."""
    streams_without_terminal: int = 0
    """Those of them whose client got no last message."""
    tasks_released: int = 0
    """Durable tasks that it gave back, for other workers."""
    residual: tuple[Residual, ...] = ()
    more: int = 0
    """Further residual that is not listed."""
    unproven: tuple[str, ...] = ()
    """The parts that are not known to have ended well: `bus drain`, `store`, `leases`, `observers`."""

    @property
    def complete(self) -> bool:
        """Whether nothing was cut, nothing remained, and all is proven to have ended well."""
        return not (self.residual or self.unproven or self.calls_cut)

    def fields(self) -> dict[str, Any]:
        """Return the members of its log line."""
        fields = asdict(self)
        del fields["role"], fields["id"]  # the line has them as `service` and `process`
        fields["phases"] = {name: round(seconds, 3) for name, seconds in self.phases.items()}
        fields["residual"] = [{"kind": kind, "name": name, "age": round(age, 3)} for kind, name, age in self.residual]
        return fields | {"complete": self.complete}


Probe = Callable[[], Iterable[tuple[str, float]]]
"""Returns the names of what is there, with the monotonic time at which each began."""


class Departure:
    """Keeps the account from which the record of a process is made.

    Attributes:
        calls_finished, calls_cancelled, calls_cut, streams_without_terminal, tasks_released: as in `Shutdown`.
        streams: ended streams by reason.
        shutdown: the record, once it is made.
    """

    def __init__(self, role: str, identifier: str) -> None:
        self.calls_finished = self.calls_cancelled = self.calls_cut = 0
        self.streams_without_terminal = self.tasks_released = 0
        self.streams: Counter[str] = Counter()
        self.shutdown: Shutdown | None = None
        self._role = role
        self._id = identifier
        self._phases: dict[str, float] = {}
        self._under_way: dict[str, float] = {}
        self._probes: list[tuple[str, Probe]] = []
        self._expected: dict[str, None] = {}
        self._residual: dict[tuple[str, str, float], float] = {}
        """Seconds since the beginning of each, when the process stopped waiting, by kind, name and beginning."""
        self._cut: str = ""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure a phase."""
        began = self._under_way[name] = time.monotonic()
        try:
            yield
        finally:
            del self._under_way[name]
            self._phases[name] = self._phases.get(name, 0.0) + time.monotonic() - began

    def is_in(self, phase: str) -> bool:
        """Return whether a phase is under way."""
        return phase in self._under_way

    def watch(self, kind: str, probe: Probe) -> None:
        """Ask a probe for what remains, whenever the process stops waiting."""
        self._probes.append((kind, probe))

    def forget(self) -> None:
        """Ask no probe any more, and let go of what they hold: the process has ended."""
        self._probes.clear()

    def expect(self, *names: str) -> None:
        """Count these as unproven until they are proven."""
        self._expected |= dict.fromkeys(names)

    def prove(self, name: str) -> None:
        """Count this as proven."""
        self._expected.pop(name, None)

    def remain(self) -> None:
        """Note what is there now: the process waits for it no longer."""
        now = time.monotonic()
        for kind, probe in self._probes:
            for name, began in probe():
                self._residual.setdefault((kind, name, began), now - began)

    def cut(self, why: str) -> None:
        """Note what is there now, and the phases under way: the rest of the work is cancelled.

        Args:
            why: stands behind the cause.
        """
        if self.shutdown is not None or self._cut:
            return
        self._cut = why
        self.remain()
        now = time.monotonic()
        for name, began in self._under_way.items():
            self._residual.setdefault(("phase", name, began), now - began)

    def record(self, cause: str, log: FilteringBoundLogger) -> Shutdown:
        """Make the record and log it; the first call counts."""
        if self.shutdown is not None:
            return self.shutdown
        now = time.monotonic()
        phases = self._phases | {name: now - began for name, began in self._under_way.items()}
        found = sorted(
            (Residual(kind, name, age) for (kind, name, _), age in self._residual.items()), key=lambda each: -each.age
        )
        self.shutdown = Shutdown(
            role=self._role,
            id=self._id,
            cause=f"{cause}, then {self._cut}" if self._cut else cause,
            phases=phases,
            calls_finished=self.calls_finished,
            calls_cancelled=self.calls_cancelled,
            calls_cut=self.calls_cut,
            streams=dict(self.streams),
            streams_without_terminal=self.streams_without_terminal,
            tasks_released=self.tasks_released,
            residual=tuple(found[:MOST_RESIDUAL]),
            more=max(0, len(found) - MOST_RESIDUAL),
            unproven=tuple(self._expected),
        )
        say = log.info if self.shutdown.complete else log.warning
        say("shutdown", **self.shutdown.fields())
        return self.shutdown
