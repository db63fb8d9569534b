"""The last 15 minutes as a console has heard them: calls and durations of the fleet, of each process, of each tool.

All of it is in memory and made of the stats that processes broadcast anyway. A process that restarts begins anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, NamedTuple

from mcpfleet.contracts.stats import EVERY, CallTimes, Sender, Stats
from mcpfleet.telemetry.instruments import FINE_BOUNDS

STEP: Final = 10.0
"""Seconds that one point of a chart stands for."""
POINTS: Final = 90
"""Points of a chart: 15 minutes."""
RECENT: Final = 6
"""Steps before the running one whose calls make the figures of now: a minute."""
MOST_TOOLS: Final = 500
"""Tools and methods that are kept; one that is called pushes out the one whose last call is oldest."""
CALLS: Final = ("tools/call", "prompts/get", "resources/read", "completion/complete")
"""Methods that a worker serves: the fleet's calls. The others are in the table of tools and methods only."""
_LONGEST: Final = 3 * EVERY
"""Seconds over which a message's calls are spread at most, if messages before it were lost."""
_BUCKETS: Final = len(FINE_BOUNDS) + 1


class ToolKey(NamedTuple):
    """A tool, or a method if the tool is empty."""

    method: str
    tool: str


@dataclass(slots=True)
class _Step:
    """Calls of ten seconds, in parts of calls: a message's calls are spread over the steps that it reaches into."""

    calls: float = 0.0
    failed: float = 0.0
    waits: dict[Sender, float] = field(default_factory=dict)
    """The most calls that waited at an edge at once; edges where none waited are left out."""
    counts: list[float] | None = field(default_factory=lambda: [0.0] * _BUCKETS)
    """None once the step is older than a minute: then its two quantiles are all that is kept."""
    quantiles: tuple[float | None, float | None] = (None, None)


class Series:
    """The steps of one process, one tool, or the fleet."""

    def __init__(self) -> None:
        self._steps: dict[int, _Step] = {}

    def hear(self, begin: float, end: float) -> None:
        """Note that nothing is missing between two moments."""
        for at, _ in _shares(begin, end):
            self._step(at)

    def add(self, begin: float, end: float, told: CallTimes) -> None:
        """Add the calls that ended between two moments, spread evenly."""
        counts = told.counts[: max(0, _BUCKETS - told.first)]
        calls = sum(counts)
        for at, share in _shares(begin, end):
            step = self._step(at)
            step.calls += calls * share
            step.failed += min(told.failed, calls) * share
            if step.counts is not None:
                for bucket, count in enumerate(counts, told.first):
                    step.counts[bucket] += count * share

    def wait(self, sender: Sender, waiting: float, now: float) -> None:
        """Note how many calls wait at an edge now."""
        if waiting:
            waits = self._step(int(now // STEP)).waits
            waits[sender] = max(waits.get(sender, 0), waiting)

    def last_heard(self) -> int:
        """Return the newest step; -1 if there is none."""
        return max(self._steps, default=-1)

    def recent(self, now: float, began: float) -> dict[str, float | None]:
        """Return the figures of the last minute.

        Args:
            now: monotonic seconds.
            began: since when the console hears.
        """
        newest = int(now // STEP)
        steps = [self._steps[at] for at in range(newest - RECENT, newest + 1) if at in self._steps]
        counts = [sum(parts) for parts in zip(*(step.counts for step in steps if step.counts), strict=True)]
        passed = max(now - max(began, (newest - RECENT) * STEP), EVERY)
        return {
            "rate": sum(step.calls for step in steps) / passed,
            "failures": sum(step.failed for step in steps) / passed,
            "p50": quantile(counts, 0.5),
            "p95": quantile(counts, 0.95),
        }

    def chart(self, now: float, began: float, heard: Series) -> dict[str, list[float | None]]:
        """Return the points of the charts, the oldest first; None where nothing was heard.

        Args:
            now: monotonic seconds.
            began: since when the console hears.
            heard: the series that says in which steps something was heard.
        """
        last = int((now - EVERY) // STEP) - 1  # of the step that is running, some calls are not told yet
        lines: dict[str, list[float | None]] = {name: [] for name in ("rate", "failures", "p50", "p95", "waiting")}
        for at in range(last - POINTS + 1, last + 1):
            step = self._steps.get(at)
            if at * STEP < began or at not in heard._steps:
                point: tuple[float | None, ...] = (None,) * 5
            elif step is None:
                point = (0.0, 0.0, None, None, 0)
            else:
                point = (step.calls / STEP, step.failed / STEP, *_quantiles(step), sum(step.waits.values()))
            for line, value in zip(lines.values(), point, strict=True):
                line.append(value if value is None else round(value, 6))
        return lines

    def _step(self, at: int) -> _Step:
        found = self._steps.get(at)
        if found is None:
            found = self._steps[at] = _Step()
            for old in [each for each in self._steps if each <= at - RECENT - 2]:
                step = self._steps[old]
                if old <= at - POINTS - 2:
                    del self._steps[old]
                elif step.counts is not None:
                    step.quantiles, step.counts = _quantiles(step), None
        return found


class History:
    """The series of the fleet, of its processes, and of its tools.

    Only edges speak of tools and of the fleet. A worker's word on its handlers counts for itself: it could name any
    tool.
    """

    def __init__(self) -> None:
        self.began = 0.0
        """Monotonic seconds since when calls are heard; 0 before."""
        self.fleet = Series()
        self._processes: dict[Sender, Series] = {}
        self._tools: OrderedDict[ToolKey, Series] = OrderedDict()
        self.has_dropped = False
        """Whether some tool was pushed out within its 15 minutes."""

    def hear(self, sender: Sender, stats: Stats, before: float | None, now: float) -> None:
        """Take a message in.

        Args:
            sender: whose it is.
            stats: the message.
            before: when the one before it was heard (monotonic); None for a first one.
            now: monotonic seconds.
        """
        begin = now - EVERY if before is None else max(before, now - _LONGEST)
        self.began = self.began or begin
        own = self._processes.setdefault(sender, Series())
        own.hear(begin, now)
        is_edge = sender.role == "edge"
        own.wait(sender, stats.numbers.get("queued", 0), now)
        if is_edge:
            self.fleet.hear(begin, now)
            self.fleet.wait(sender, stats.numbers.get("queued", 0), now)
        for told in stats.calls:
            if not is_edge:
                own.add(begin, now, told)
                continue
            tool = self._tool(ToolKey(told.method, told.tool))
            tool.add(begin, now, told)
            tool.wait(sender, told.waiting, now)
            if told.method in CALLS:
                own.add(begin, now, told)
                self.fleet.add(begin, now, told)

    def _tool(self, key: ToolKey) -> Series:
        found = self._tools.setdefault(key, Series())
        self._tools.move_to_end(key)
        if len(self._tools) > MOST_TOOLS:
            self._tools.popitem(last=False)
            self.has_dropped = True
        return found

    def process(self, sender: Sender) -> Series:
        """Return the series of a process; an empty one if it was not heard."""
        return self._processes.get(sender) or Series()

    def tool(self, key: ToolKey) -> Series | None:
        """Return the series of a tool that was called in the last 15 minutes."""
        return self._tools.get(key)

    def tools(self, now: float) -> list[tuple[ToolKey, Series]]:
        """Return the tools that were called in the last 15 minutes, by name, and drop the others."""
        oldest = int(now // STEP) - POINTS
        for key, series in list(self._tools.items()):
            if series.last_heard() >= oldest:
                break  # those behind it were called later
            del self._tools[key]
        return sorted(self._tools.items(), key=lambda each: (each[0].method != "tools/call", each[0]))

    def keep(self, senders: Sequence[Sender]) -> None:
        """Drop the processes that are not among these."""
        for sender in self._processes.keys() - set(senders):
            del self._processes[sender]


def as_chart(series: Series, history: History, now: float, heard: Series | None = None) -> dict[str, Any]:
    """Return a series' charts for the page, with what a point stands for."""
    return {"step": STEP, **series.chart(now, history.began, series if heard is None else heard)}


def quantile(counts: Sequence[float], share: float) -> float | None:
    """Return the seconds within which a share of calls has ended, interpolated in its bucket; None without calls.

    Calls beyond the last bound count as that bound.
    """
    total = sum(counts)
    if total <= 0:
        return None
    rank, below = total * share, 0.0
    for at, sums in enumerate(accumulate(counts)):
        if sums >= rank and counts[at] > 0:
            if at == len(FINE_BOUNDS):
                break
            lower = FINE_BOUNDS[at - 1] if at else 0.0
            return lower + (FINE_BOUNDS[at] - lower) * (rank - below) / counts[at]
        below = sums
    return FINE_BOUNDS[-1]


def _quantiles(step: _Step) -> tuple[float | None, float | None]:
    if step.counts is None:
        return step.quantiles
    return quantile(step.counts, 0.5), quantile(step.counts, 0.95)


def _shares(begin: float, end: float) -> Iterator[tuple[int, float]]:
    """Split a time by steps: each step with its share of the time."""
    length = end - begin
    if length <= 0:
        yield int(end // STEP), 1.0
        return
    for at in range(int(begin // STEP), int(end // STEP) + 1):
        share = (min(end, (at + 1) * STEP) - max(begin, at * STEP)) / length
        if share > 0:
            yield at, share
