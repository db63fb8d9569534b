"""Metrics as plain numbers in memory, read by scrapes and pushes.

OpenTelemetry's metric SDK is off the path of a call on purpose. With it, one histogram record or counter increment with
three attributes costs 7 µs, and a call makes several. Here they cost 0.5 µs and 0.3 µs. The numbers leave in two ways:
`exposition.py` writes them for Prometheus, `push.py` hands them to the SDK's OTLP exporter.

Instruments may be used from any thread. Labels have few values: no ids, and nothing that a caller wrote.
"""

from __future__ import annotations

import logging
import os
import resource
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

_log: Final = logging.getLogger(__name__)
SERIES_LIMIT: Final = 2000
"""Label sets that an instrument keeps apart; later ones count under `OVERFLOW`."""
OVERFLOW: Final = "_OTHER"
"""The value of each label of the series that counts label sets over the limit."""

Labels = tuple[str, ...]
Unit = Literal["", "s", "By"]
"""As UCUM writes it: seconds, bytes, or nothing for a count."""


@dataclass(frozen=True, slots=True)
class Point:
    """The value of one label set now."""

    labels: Labels
    value: float
    """The value of a counter or gauge; the sum of a histogram."""
    buckets: tuple[int, ...] = ()
    """A histogram's counts, one a bound and one above the last; not cumulative."""


@dataclass(frozen=True, slots=True)
class Family:
    """The values of one instrument at one time."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    description: str
    unit: Unit
    labels: Labels
    """The labels' names."""
    points: tuple[Point, ...]
    bounds: tuple[float, ...] = ()
    """A histogram's upper bounds, inclusive."""


@dataclass(frozen=True, slots=True)
class Description:
    """The description of an instrument."""

    name: str
    """In OpenTelemetry's form, dots between words."""
    text: str
    unit: Unit = ""
    labels: Labels = ()


class Counter:
    """A number that only grows."""

    def __init__(self, about: Description) -> None:
        self.about = about
        self._lock = threading.Lock()
        # Zero from the start for a single series: a rate needs the value before the first event.
        self._values: dict[Labels, float] = {} if about.labels else {(): 0}
        self._readers: list[tuple[Labels, Callable[[], float]]] = []

    def observe(self, read: Callable[[], float], *labels: str) -> None:
        """Add what a function returns, which never falls, whenever the values are read."""
        with self._lock:
            self._readers.append((_admitted(self.about, labels, len(self._values) + len(self._readers)), read))

    def let_go(self) -> None:
        """Read no function any more; what they returned stays."""
        with self._lock:
            for labels, read in self._readers:
                self._values[labels] = self._values.get(labels, 0) + read()
            self._readers.clear()

    def add(self, amount: float, *labels: str) -> None:
        """Add an amount; the labels' values stand in the order of their names."""
        with self._lock:
            try:
                self._values[labels] += amount
            except KeyError:
                labels = _admitted(self.about, labels, len(self._values))
                self._values[labels] = self._values.get(labels, 0) + amount

    def read(self) -> Family:
        """Return the values now."""
        with self._lock:
            values = dict(self._values)
            for labels, read in self._readers:
                values[labels] = values.get(labels, 0) + read()
        return _family(self.about, "counter", tuple(Point(labels, value) for labels, value in values.items()))


class Gauge:
    """A number that goes up and down: set, moved, or read from a function."""

    def __init__(self, about: Description) -> None:
        self.about = about
        self._lock = threading.Lock()
        self._values: dict[Labels, float] = {}
        self._readers: dict[Labels, Callable[[], float]] = {}

    def set(self, value: float, *labels: str) -> None:
        """Replace the value."""
        with self._lock:
            if labels not in self._values:
                labels = _admitted(self.about, labels, len(self._values))
            self._values[labels] = value

    def add(self, amount: float, *labels: str) -> None:
        """Move the value; a negative amount moves it down."""
        with self._lock:
            if labels not in self._values:
                labels = _admitted(self.about, labels, len(self._values))
            self._values[labels] = self._values.get(labels, 0) + amount

    def forget(self, *labels: str) -> None:
        """Leave a label set out from now on: its subject is gone."""
        with self._lock:
            self._values.pop(labels, None)
            self._readers.pop(labels, None)

    def observe(self, read: Callable[[], float], *labels: str) -> None:
        """Read the value from this function at every scrape; it is called in any thread, and answers at once."""
        with self._lock:
            self._readers[_admitted(self.about, labels, len(self._readers))] = read

    def let_go(self) -> None:
        """Read no function any more."""
        with self._lock:
            self._readers.clear()

    def read(self) -> Family:
        """Return the values now."""
        with self._lock:
            values, readers = dict(self._values), dict(self._readers)
        for labels, observed in readers.items():
            try:
                values[labels] = observed()
            except Exception:  # the other values are worth telling
                _log.exception("metric not read: %s", self.about.name)
        return _family(self.about, "gauge", tuple(Point(labels, value) for labels, value in values.items()))


class Histogram:
    """The distribution of values over fixed buckets.

    It may count in finer buckets than it exports: the console's quantiles need them, and a second histogram would cost
    each call its record once more.
    """

    def __init__(self, about: Description, bounds: Sequence[float], finer: Sequence[float] = ()) -> None:
        """Count in buckets.

        Args:
            about: its name, unit and labels.
            bounds: the upper bounds of the exported buckets, ascending.
            finer: those of the counted ones, each of `bounds` among them; by default the same.

        Raises:
            ValueError: one of `bounds` is not among `finer`.
        """
        self.about = about
        self._exported = tuple(bounds)
        self._bounds = tuple(finer) or self._exported
        ends = [self._bounds.index(bound) + 1 for bound in self._exported]
        self._parts = tuple(map(slice, [0, *ends], [*ends, len(self._bounds) + 1]))
        """The counted buckets of each exported one."""
        self._lock = threading.Lock()
        self._series: dict[Labels, _Spread] = {}

    def record(self, value: float, *labels: str) -> None:
        """Count one value; the labels' values stand in the order of their names."""
        with self._lock:
            spread = self._series.get(labels)
            if spread is None:
                labels = _admitted(self.about, labels, len(self._series))
                spread = self._series.setdefault(labels, _Spread(len(self._bounds) + 1))
            spread.buckets[bisect_left(self._bounds, value)] += 1
            spread.total += value

    def read(self) -> Family:
        """Return the values now, in the exported buckets."""
        finely = self.read_finely()
        if self._bounds == self._exported:
            return finely
        points = tuple(
            Point(each.labels, each.value, tuple(sum(each.buckets[part]) for part in self._parts))
            for each in finely.points
        )
        return _family(self.about, "histogram", points, self._exported)

    def read_finely(self) -> Family:
        """Return the values now, in the counted buckets."""
        with self._lock:
            points = tuple(Point(labels, s.total, tuple(s.buckets)) for labels, s in self._series.items())
        return _family(self.about, "histogram", points, self._bounds)


_Instrument = TypeVar("_Instrument", Counter, Gauge, Histogram)


class Metrics:
    """The instruments of one service."""

    def __init__(self) -> None:
        self.since_ns = time.time_ns()
        """The beginning of counting, in nanoseconds of Unix time."""
        self._instruments: dict[str, Counter | Gauge | Histogram] = {}

    def let_go(self) -> None:
        """Hold nothing of the service, which has ended."""
        for instrument in self._instruments.values():
            if not isinstance(instrument, Histogram):
                instrument.let_go()

    def counter(self, name: str, text: str, unit: Unit = "", labels: Labels = ()) -> Counter:
        """Make a counter; raises ValueError if the name is taken."""
        return self._add(Counter(Description(name, text, unit, labels)))

    def gauge(self, name: str, text: str, unit: Unit = "", labels: Labels = ()) -> Gauge:
        """Make a gauge; raises ValueError if the name is taken."""
        return self._add(Gauge(Description(name, text, unit, labels)))

    def histogram(
        self,
        name: str,
        text: str,
        bounds: Sequence[float],
        unit: Unit = "",
        labels: Labels = (),
        *,
        finer: Sequence[float] = (),
    ) -> Histogram:
        """Make a histogram with these upper bounds, ascending, as `Histogram`; raises ValueError if the name is
        taken."""
        return self._add(Histogram(Description(name, text, unit, labels), bounds, finer))

    def read(self, *, finely: bool = False) -> list[Family]:
        """Return all values now, in the order in which the instruments were made.

        Args:
            finely: read histograms in the buckets that they count, not in those that they export.
        """
        return [
            each.read_finely() if finely and isinstance(each, Histogram) else each.read()
            for each in list(self._instruments.values())
        ]

    def _add(self, instrument: _Instrument) -> _Instrument:
        if instrument.about.name in self._instruments:
            raise ValueError(f"there are two instruments named {instrument.about.name}")
        self._instruments[instrument.about.name] = instrument
        return instrument


class _Spread:
    __slots__ = ("buckets", "total")

    def __init__(self, size: int) -> None:
        self.buckets = [0] * size
        self.total = 0.0


def _admitted(about: Description, labels: Labels, kept: int) -> Labels:
    """Return the series of a new label set: its own, or that of the overflow."""
    if len(labels) != len(about.labels):
        raise ValueError(f"{about.name} has the labels {about.labels}, not {len(labels)} of them")
    return labels if kept < SERIES_LIMIT else (OVERFLOW,) * len(labels)


def _family(
    about: Description,
    kind: Literal["counter", "gauge", "histogram"],
    points: tuple[Point, ...],
    bounds: tuple[float, ...] = (),
) -> Family:
    return Family(about.name, kind, about.text, about.unit, about.labels, points, bounds)


STARTED: Final = time.time()
"""A moment after the process began: this module is among its first imports."""
_PROC: Final = Path("/proc/self")


def usage() -> Iterator[Family]:
    """Read the values now; those of /proc are left out if it cannot be read."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield _figure("process.cpu", "counter", "Processor time used.", used.ru_utime + used.ru_stime, "s")
    yield _figure("process.start_time", "gauge", "When the process began, in Unix time.", STARTED, "s")
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield _figure("process.max_fds", "gauge", "File descriptors allowed.", allowed)
    # If no descriptor is left, the other values are still told.
    with suppress(OSError):
        resident = int((_PROC / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        yield _figure("process.resident_memory", "gauge", "Memory in use.", resident, "By")
    with suppress(OSError):
        in_use = sum(1 for _ in (_PROC / "fd").iterdir())
        yield _figure("process.open_fds", "gauge", "File descriptors in use.", in_use)


def _figure(name: str, kind: Literal["counter", "gauge"], text: str, value: float, unit: Unit = "") -> Family:
    return Family(name, kind, text, unit, (), (Point((), value),))
