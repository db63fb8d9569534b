"""Renews the lease of each stream before it ends."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from typing import Final

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.edge.streams.lease import RenewalUnanswered
from mcpfleet.edge.streams.stream import Exit, Stream
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.telemetry.metrics import Histogram

AT_ONCE: Final = 16
"""Renewals of an edge that run at the same time (N12)."""
_TIMEOUT: Final = 5.0
"""Seconds that one renewal may take (N7)."""
_LEAST: Final = 60
"""Two renewals are at least this part of the longest lease apart."""
_TRIES: Final = 10
"""Further attempts in what is left of a lease, while authorization does not answer."""


class Renewals:
    """Renews each lease after half of its life and a stagger, so that leases of one moment spread out.

    A refusal ends the stream. Without an answer, the renewal is tried again until the lease ends, and the stream with
    it: it fails closed.
    """

    def __init__(
        self, *, longest: float, refresh: Callable[[Stream], None], renewals: Histogram, log: FilteringBoundLogger
    ) -> None:
        """Begin without streams.

        Args:
            longest: seconds that a lease may hold, at most (N6).
            refresh: lets a stream go on whose lease was renewed, perhaps with other rights.
            renewals: records how long each renewal took, and its outcome.
            log: reports failed renewals.
        """
        self._longest = longest
        self._refresh = refresh
        self._renewals = renewals
        self._log = log
        self._timers: dict[Stream, asyncio.TimerHandle] = {}
        self._waiting: dict[Stream, None] = {}
        self._has_work = AutoResetEvent()

    def add(self, stream: Stream) -> None:
        """Renew a stream's lease from now on, until `remove`."""
        self._hold(stream)

    def remove(self, stream: Stream) -> None:
        """Stop renewing a stream's lease."""
        self._waiting.pop(stream, None)
        if (timer := self._timers.pop(stream, None)) is not None:
            timer.cancel()

    def renew_now(self, stream: Stream) -> None:
        """Renew a stream's lease at once."""
        if (timer := self._timers.pop(stream, None)) is not None:
            timer.cancel()
        self._fall_due(stream)

    async def run(self) -> None:
        """Renew leases, until cancelled."""
        places = anyio.Semaphore(AT_ONCE)
        async with anyio.create_task_group() as tasks:
            while True:
                await self._has_work.wait()
                while self._waiting:
                    await places.acquire()
                    if not self._waiting:
                        places.release()
                        break
                    stream = next(iter(self._waiting))
                    del self._waiting[stream]
                    tasks.start_soon(self._renew, stream, places)

    def _hold(self, stream: Stream) -> None:
        """Let a stream go on until its lease ends, and schedule the renewal in time (N13)."""
        if stream.lease.expires == math.inf:
            stream.holds_until = math.inf
            return
        now = time.monotonic()
        stream.holds_until = min(stream.lease.expires, now + self._longest)
        life = stream.holds_until - now
        half = life / 2 + random.uniform(0, min(1.0, life / 20))  # noqa: S311  # no secret
        # Before the end of a credential, each renewal leaves half of a half: renewals need a least distance.
        self._schedule(stream, max(half, self._longest / _LEAST))

    def _schedule(self, stream: Stream, seconds: float) -> None:
        self._timers[stream] = asyncio.get_running_loop().call_later(max(0.0, seconds), self._fall_due, stream)

    def _fall_due(self, stream: Stream) -> None:
        self._timers.pop(stream, None)
        self._waiting[stream] = None
        self._has_work.set()

    async def _renew(self, stream: Stream, places: anyio.Semaphore) -> None:
        began, outcome = time.monotonic(), "failed"
        try:
            if stream.is_over:
                outcome = ""
                return
            with anyio.fail_after(_TIMEOUT):
                goes_on = await stream.lease.renew()
        except (RenewalUnanswered, TimeoutError):
            outcome = "unanswered"
            left = min(stream.holds_until - time.monotonic(), self._longest)
            self._schedule(stream, max(left / _TRIES, 0.05) * random.uniform(0.5, 1))  # noqa: S311  # no secret
        except Exception:
            self._log.exception("lease not renewed")
            stream.end(Exit.LEASE_ENDED)
        else:
            outcome = "renewed" if goes_on else "refused"
            if not goes_on:
                stream.end(Exit.LEASE_ENDED)
            elif not stream.is_over:
                self._hold(stream)
                self._refresh(stream)
        finally:
            places.release()
            if outcome:
                self._renewals.record(time.monotonic() - began, outcome)
