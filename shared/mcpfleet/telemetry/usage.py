"""What this process uses of its machine, under the names that Prometheus' own clients use."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from mcpfleet.telemetry.metrics import Family, Point, Unit

STARTED: Final = time.time()
"""A moment after the process did: this is among the first that it imports."""
_PROC: Final = Path("/proc/self")


def usage() -> Iterator[Family]:
    """Read the figures now; those of /proc are left out where it cannot be read."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield _figure("process.cpu", "counter", "Processor time used.", used.ru_utime + used.ru_stime, "s")
    yield _figure("process.start_time", "gauge", "When the process began, in Unix time.", STARTED, "s")
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield _figure("process.max_fds", "gauge", "File descriptors allowed.", allowed)
    # Also where no descriptor is left, the others are told.
    with suppress(OSError):
        resident = int((_PROC / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        yield _figure("process.resident_memory", "gauge", "Memory in use.", resident, "By")
    with suppress(OSError):
        in_use = sum(1 for _ in (_PROC / "fd").iterdir())
        yield _figure("process.open_fds", "gauge", "File descriptors in use.", in_use)


def _figure(name: str, kind: Literal["counter", "gauge"], text: str, value: float, unit: Unit = "") -> Family:
    return Family(name, kind, text, unit, (), (Point((), value),))
