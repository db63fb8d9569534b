"""How a worker asks the tasks service again: with growing pauses, while it holds the task."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError, Failed, Fault, NotRun, TooLarge, Unanswered
from mcpfleet.process.retry import pauses
from mcpfleet.worker.tasks.holdings import Holding

LONGEST_PAUSE: Final = 2.0
"""Seconds between two tries, at most."""
_FIRST_PAUSE: Final = 0.1
"""Seconds between the first try and the second."""
_PATIENCE: Final = 30.0
"""Seconds for which unexpected errors are retried: mistakes of the service, or of its store."""
_DECISIONS: Final = frozenset({Fault.CONTRACT, Fault.UNKNOWN, Fault.REFUSED, Fault.TOO_LARGE})

Answer = TypeVar("Answer")


class Lost(Exception):
    """Raised when a task is not held any more."""


async def retry(holding: Holding, ask: Callable[[], Awaitable[Answer]], log: FilteringBoundLogger) -> Answer:
    """Ask until there is an answer; the question is safe to repeat.

    Raises:
        Lost: the task is not held any more.
        BusError: the service refused, or unexpected errors went on for `_PATIENCE` seconds.
    """
    odd_since: float | None = None
    with holding.traced():
        for pause in retry_pauses():
            if holding.is_lost:
                break
            try:
                return await ask()
            except BusError as error:
                if is_decision(error):
                    raise
                log.debug("task request not answered", error=str(error))
                if is_outage(error):
                    odd_since = None
                else:
                    odd_since = odd_since or time.monotonic()
                    if time.monotonic() - odd_since > _PATIENCE:
                        raise
            await anyio.sleep(pause)
    raise Lost


def retry_pauses() -> Iterator[float]:
    """Seconds between one try and the next, without end."""
    return pauses(_FIRST_PAUSE, LONGEST_PAUSE)


def is_outage(error: BusError) -> bool:
    """Whether an error is an outage, which passes by itself; any other error may stay as it is."""
    if isinstance(error, Failed):
        return error.kind == Fault.UNAVAILABLE
    return isinstance(error, NotRun | Unanswered)


def is_decision(error: BusError) -> bool:
    """Whether the service, or our own limit, refuses for good, however often it is asked."""
    return isinstance(error, TooLarge) or (isinstance(error, Failed) and error.kind in _DECISIONS)


def is_too_large(error: BusError) -> bool:
    """Whether the message is too large, by our own limit or by the service's; a smaller one may do."""
    return isinstance(error, TooLarge) or (isinstance(error, Failed) and error.kind == Fault.TOO_LARGE)
