"""A failed report ends no process: it is logged, and the next one is tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from structlog.typing import FilteringBoundLogger


@contextmanager
def reporting(log: FilteringBoundLogger, report: str) -> Iterator[None]:
    """Log whatever one report raises, and go on; cancellation passes through.

    Args:
        log: names the report that failed. Lines keep a pace (`pace.py`), so a report that fails each time is no flood.
        report: what is reported, in words of ours.
    """
    try:
        yield
    except Exception:
        log.exception("report failed", report=report)


def say_ready(log: FilteringBoundLogger, url: str = "") -> None:
    """Say `ready` on standard output for whoever started this process; nobody may read it any more."""
    with reporting(log, "ready"):
        print(f"ready {url}".rstrip(), flush=True)  # noqa: T201  # this line is for programs
