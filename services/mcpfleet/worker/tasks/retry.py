"""How a worker asks the tasks service again: with growing pauses, while the task is its own."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError, Failed, Fault, NotRun, TooLarge, Unanswered
from mcpfleet.telemetry.trace import current
from mcpfleet.worker.tasks.holdings import Holding

LONGEST_PAUSE: Final = 2.0
_PAUSE: Final = 0.1
"""Seconds between the first try and the second."""
_PATIENCE: Final = 30.0
"""Seconds for which an answer that nobody expects is met by asking again: a mistake of the service, or of its store."""
_DECISIONS: Final = frozenset({Fault.CONTRACT, Fault.UNKNOWN, Fault.REFUSED, Fault.TOO_LARGE})

Answer = TypeVar("Answer")


class Lost(Exception):
    """Raised when a task is no longer this worker's."""


async def insist(holding: Holding, ask: Callable[[], Awaitable[Answer]], log: FilteringBoundLogger) -> Answer:
    """Ask until there is an answer; what is asked is safe to repeat.

    Raises:
        Lost: the task is no longer ours.
        BusError: it is refused, or was answered by mistakes for `_PATIENCE` seconds.
    """
    odd_since: float | None = None
    for pause in pauses():
        if holding.is_lost:
            break
        outer = current.get()
        current.set(holding.trace)
        try:
            return await ask()
        except BusError as error:
            if is_decision(error):
                raise
            log.debug("the tasks service does not answer", error=str(error))
            if passes(error):
                odd_since = None
            else:
                odd_since = odd_since or time.monotonic()
                if time.monotonic() - odd_since > _PATIENCE:
                    raise
        finally:
            current.set(outer)
        await anyio.sleep(pause)
    raise Lost


def passes(error: BusError) -> bool:
    """Whether an error is an outage, which passes by itself; all else may stay as it is."""
    if isinstance(error, Failed):
        return error.kind == Fault.UNAVAILABLE
    return isinstance(error, NotRun | Unanswered)


def is_decision(error: BusError) -> bool:
    """Whether the service, or our own limit, says that this is not done, however often it is asked."""
    return isinstance(error, TooLarge) or (isinstance(error, Failed) and error.kind in _DECISIONS)


def pauses() -> Iterator[float]:
    """Seconds between one try and the next, without end."""
    pause = _PAUSE
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE)


def is_too_large(error: BusError) -> bool:
    """Whether what was asked is too large, by our own limit or by the service's: less of it may do."""
    return isinstance(error, TooLarge) or (isinstance(error, Failed) and error.kind == Fault.TOO_LARGE)
