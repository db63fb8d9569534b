"""Sends the hints of changes, and sends them again if a lost link may have lost them."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.catalog import Announced
from mcpfleet.contracts.hints import (
    LISTS,
    Change,
    OwnChange,
    extension_hint_subject,
    list_hint_subject,
    resource_hint_subject,
    resource_key,
)
from mcpfleet.telemetry.trace import TraceContext

_KEPT: Final = 10_000
"""Changes that are remembered; the oldest go first, and `ttlMs` bounds how long a client goes without them."""


class Publisher:
    """Speaks for one worker. A hint that is sent twice does no harm; a lost one leaves clients with old data."""

    def __init__(self, bus: Bus, pool: str, *, doubtful: float, log: FilteringBoundLogger) -> None:
        """Publish nothing yet.

        Args:
            bus: the worker's.
            pool: in whose name it publishes.
            doubtful: seconds before the loss of a link in which the link may have been dead already.
            log: for what an operator should know.
        """
        self._bus = bus
        self._pool = pool
        self._doubtful = doubtful
        self._log = log
        self._recent: OrderedDict[Change, tuple[float, TraceContext | None]] = OrderedDict()
        """When each change was published last (monotonic), and because of what."""
        self._lost_at: float | None = None
        self.endpoints: tuple[str, ...] = ()
        """The endpoints whose streams are told; the catalog names them."""
        bus.on_link(self._on_link)

    def counted(self, answer: Announced) -> None:
        """Take the catalog's answer about the pool. Hints from before the first answer are sent now."""
        if answer.endpoints and not self.endpoints:
            self.endpoints = answer.endpoints
            self._send_again(since=0.0)
        self.endpoints = answer.endpoints

    def publish(self, change: Change, cause: TraceContext | None = None) -> None:
        """Tell every endpoint that the pool may serve.

        Args:
            change: what has changed.
            cause: the work that changed it.
        """
        self._recent[change] = time.monotonic(), cause
        self._recent.move_to_end(change)
        if len(self._recent) > _KEPT:
            self._recent.popitem(last=False)
        self._send(change, cause)

    def _send(self, change: Change, cause: TraceContext | None) -> None:
        body = (change.text if isinstance(change, OwnChange) else change).encode()
        try:
            for endpoint in self.endpoints:
                self._bus.hint(self._subject(endpoint, change), body, cause)
        except BusError as error:
            self._log.debug("hint not sent", error=str(error))

    def _subject(self, endpoint: str, change: Change) -> str:
        if isinstance(change, OwnChange):
            return extension_hint_subject(endpoint, self._pool, resource_key(change.text))
        if change == LISTS:
            return list_hint_subject(endpoint, self._pool)
        return resource_hint_subject(endpoint, self._pool, resource_key(change))

    def _on_link(self, is_up: bool) -> None:
        """Send again what may not have arrived."""
        if not is_up:
            self._lost_at = time.monotonic()
            return
        since = self._lost_at - self._doubtful if self._lost_at is not None else 0.0
        self._lost_at = None
        self._send_again(since)

    def _send_again(self, since: float) -> None:
        for change, (published, cause) in list(self._recent.items()):
            if published >= since:
                self.publish(change, cause)
