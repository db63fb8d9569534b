"""What an asker is told where the store does not answer; where it stands is for our log, not for others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import Failed
from mcpfleet.bus.fault import Fault
from mcpfleet.store.errors import StoreError

Answering: TypeAlias = Callable[[], AbstractContextManager[None]]


def answering(log: FilteringBoundLogger) -> Answering:
    """Make what turns the store's errors into the bus's."""

    @contextmanager
    def store_answers() -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            log.warning("store failed", error=str(error))
            raise Failed(Fault.UNAVAILABLE, "the tasks service's store does not answer") from error

    return store_answers
