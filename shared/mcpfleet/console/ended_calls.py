"""The calls of a process that have ended and were not told to consoles yet, by tool and by duration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mcpfleet.contracts.stats import LONGEST_NAME, LONGEST_TOOL, MOST_TIMED, CallTimes
from mcpfleet.telemetry.instruments import FINE_BOUNDS
from mcpfleet.telemetry.metrics import Family, Labels
from mcpfleet.telemetry.names import ERROR_TYPE, GEN_AI_TOOL_NAME, MCP_METHOD_NAME

_DURATIONS: Final = ("mcp.server.operation.duration", "mcpfleet.worker.handler.duration")
_WAITING: Final = "mcpfleet.edge.queue.tools"
_STREAMS: Final = ("subscriptions/listen",)
"""Methods that last as long as their clients like, which says nothing of how fast the fleet is."""


class _Key(NamedTuple):
    method: str
    tool: str


@dataclass(slots=True)
class _Ended:
    failed: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * (len(FINE_BOUNDS) + 1))


class EndedCalls:
    """Compares the durations that a process has counted with those that it told before.

    The path of a call has no part in this: it counts each duration once, in a histogram.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, Labels], tuple[int, ...]] = {}
        self._untold: dict[_Key, _Ended] = {}
        """In the order in which they began to wait for a message with room."""

    def take(self, families: Iterable[Family], room: int) -> tuple[CallTimes, ...]:
        """Return what has ended since it was told last, as much as a message takes; the rest waits for the next.

        Args:
            families: the process's metrics, read finely.
            room: bytes of JSON.
        """
        waiting: Mapping[_Key, int] = {}
        for family in families:
            if family.name in _DURATIONS:
                self._count(family)
            elif family.name == _WAITING:
                waiting = {
                    _Key("tools/call", point.labels[0]): int(point.value)
                    for point in family.points
                    if point.labels[0] and point.value > 0
                }
        told: list[CallTimes] = []
        for key in [*self._untold, *(each for each in waiting if each not in self._untold)]:
            times = _times(key, self._untold.get(key) or _Ended(), waiting.get(key, 0))
            room -= len(times.model_dump_json().encode()) + 1
            if room < 0 or len(told) == MOST_TIMED:
                break
            self._untold.pop(key, None)
            told.append(times)
        return tuple(told)

    def _count(self, family: Family) -> None:
        """Add what was counted since; a series that has not changed costs one comparison."""
        for point in family.points:
            series = family.name, point.labels
            before = self._seen.get(series)
            if before == point.buckets:
                continue
            self._seen[series] = point.buckets
            labels = dict(zip(family.labels, point.labels, strict=True))
            method = labels.get(MCP_METHOD_NAME, "")
            if method in _STREAMS:
                continue
            ended = self._untold.setdefault(_Key(method, labels[GEN_AI_TOOL_NAME]), _Ended())
            new = [count - old for count, old in zip(point.buckets, before or (0,) * len(point.buckets), strict=True)]
            ended.counts = [count + more for count, more in zip(ended.counts, new, strict=True)]
            if labels[ERROR_TYPE]:
                ended.failed += sum(new)


def _times(key: _Key, ended: _Ended, waiting: int) -> CallTimes:
    used = [at for at, count in enumerate(ended.counts) if count]
    first, end = (used[0], used[-1] + 1) if used else (0, 0)
    return CallTimes(
        method=key.method[:LONGEST_NAME],
        tool=key.tool[:LONGEST_TOOL],
        failed=ended.failed,
        waiting=waiting,
        first=first,
        counts=tuple(ended.counts[first:end]),
    )
