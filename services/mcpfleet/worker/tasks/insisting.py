"""How a worker asks the tasks service again: with growing pauses, while the task is its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError, Failed, NotRun, Refused, TooLarge, Unanswered
from mcpfleet.bus.fault import Fault
from mcpfleet.telemetry.trace import current
from mcpfleet.worker.tasks.holding import Holding

LONGEST_PAUSE: Final = 2.0
_PAUSE: Final = 0.1

Answer = TypeVar("Answer")


class Lost(Exception):
    """Raised when a task is no longer this worker's."""


async def insist(holding: Holding, ask: Callable[[], Awaitable[Answer]], log: FilteringBoundLogger) -> Answer:
    """Ask until there is an answer; what is asked is safe to repeat.

    Raises:
        Lost: the task is no longer ours.
        BusError: it is refused.
    """
    for pause in pauses():
        if holding.is_lost:
            break
        outer = current.get()
        current.set(holding.trace)
        try:
            return await ask()
        except (TooLarge, Refused):
            raise
        except (NotRun, Unanswered) as error:
            log.debug("the tasks service does not answer", error=str(error))
        except Failed as error:
            if error.kind != Fault.UNAVAILABLE:
                raise
        finally:
            current.set(outer)
        await anyio.sleep(pause)
    raise Lost


def pauses() -> Iterator[float]:
    """Seconds between one try and the next, without end."""
    pause = _PAUSE
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE)


def is_too_large(error: BusError) -> bool:
    """Whether what was asked is too large, by our own limit or by the service's: less of it may do."""
    return isinstance(error, TooLarge) or (isinstance(error, Failed) and error.kind == Fault.TOO_LARGE)
