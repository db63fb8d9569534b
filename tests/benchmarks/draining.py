"""Has an edge with many streams leave: what each of them is told, how they are spread, and how the process ends.

    .venv/bin/python -m tests.benchmarks.draining --streams 2000

Seconds count from SIGTERM. The clients of the first ones listen again at another edge while the last ones still listen
here: so many at once is what the spreading keeps from the other edges.
"""

from __future__ import annotations

import argparse
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from rich.console import Console

from mcpfleet.testing.fleet import Fleet
from tests.contract.fleet.listener import ACK, END
from tests.kit.crowd import crowd
from tests.kit.waiting import until

APP: Final = Path(__file__).parents[1] / "fleet" / "library_app.py"
BOOK: Final = "library://books/1"
_MORE: Final = 15.0
"""Seconds beyond the drain time in which a process ends, or never does."""


@dataclass(frozen=True)
class Findings:
    """The outcome of one edge's drain."""

    seconds: tuple[float, ...]
    """Until each stream ended, in order."""
    kinds: frozenset[tuple[str, ...]]
    """The kinds of messages that the streams had."""
    ends: frozenset[str]
    """The types of their results."""
    closed: int
    """Streams whose connections are closed."""
    exited: float
    """Seconds until the process had ended."""
    exit_code: int | None

    @property
    def most_in_a_second(self) -> int:
        """The most streams that ended within one second."""
        return max(Counter(map(int, self.seconds)).values())


async def draining(streams: int, drain: float) -> Findings:
    """Open streams at one edge, and have it leave within so many seconds."""
    async with (
        Fleet(APP, environment={"MCPFLEET_DRAIN": f"{drain}"}) as fleet,
        crowd(fleet.urls[0], [None] * streams, resourceSubscriptions=[BOOK]) as opened,
    ):
        edge, began = fleet.edges[0], time.monotonic()
        edge.signal(signal.SIGTERM)
        await until(lambda: not edge.is_running, within=drain + _MORE)
        exited = time.monotonic() - began
        await until(lambda: all(stream.is_closed for stream in opened))
        return Findings(
            tuple(sorted(stream.ended - began for stream in opened if END in stream.kinds)),
            frozenset(tuple(stream.kinds) for stream in opened),
            frozenset(stream.result["resultType"] for stream in opened if stream.result),
            sum(stream.is_closed for stream in opened),
            exited,
            edge.exit_code,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=2_000)
    parser.add_argument("--drain", type=float, default=30.0)
    options = parser.parse_args()
    found = anyio.run(draining, options.streams, options.drain)
    console = Console(width=120, highlight=False)
    console.print(
        f"{len(found.seconds):,} of {options.streams:,} streams had their result, the first after "
        f"{found.seconds[0]:.1f} s, the last after {found.seconds[-1]:.1f} s, at most {found.most_in_a_second:,} in a "
        f"second; the process ended after {found.exited:.1f} s with {found.exit_code}"
    )
    assert found.kinds == {(ACK, END)}, found.kinds
    assert found.ends == {"complete"}
    assert found.exit_code == 0
