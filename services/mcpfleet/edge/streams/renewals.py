"""Asks again, before it ends, for the permission of each stream that has one with an end."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from typing import Final

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.edge.streams.lease import Unasked
from mcpfleet.edge.streams.stream import Exit, Stream

AT_ONCE: Final = 16
"""Renewals that an edge asks for at the same time (N12)."""
_ASKED_WITHIN: Final = 5.0
"""Seconds that one may take (N7)."""
_LEAST: Final = 60
"""The part of the longest permission that lies between two renewals at least."""
_TRIES: Final = 10
"""Times that a permission which nobody could renew is asked for again in what is left of it."""


class Renewals:
    """Renews at half of a permission's life and a stagger, so that those which began together do not ask together.

    A refusal ends the stream. Where nobody answers it is asked again until the permission has ended, and the stream
    with it: it fails closed.
    """

    def __init__(self, *, longest: float, refresh: Callable[[Stream], None], log: FilteringBoundLogger) -> None:
        """Renew nothing yet.

        Args:
            longest: seconds for which a permission may hold at most (N6).
            refresh: has a stream go on whose permission was renewed, perhaps as somebody with other rights.
            log: for what an operator should know.
        """
        self._longest = longest
        self._refresh = refresh
        self._log = log
        self._timers: dict[Stream, asyncio.TimerHandle] = {}
        self._waiting: dict[Stream, None] = {}
        self._has_work = anyio.Event()

    def add(self, stream: Stream) -> None:
        """Renew a stream's permission from now on, until `remove`."""
        self._hold(stream)

    def remove(self, stream: Stream) -> None:
        """Renew it no more."""
        self._waiting.pop(stream, None)
        if (timer := self._timers.pop(stream, None)) is not None:
            timer.cancel()

    def renew_now(self, stream: Stream) -> None:
        """Ask at once, before those whose time comes later."""
        if (timer := self._timers.pop(stream, None)) is not None:
            timer.cancel()
        self._fall_due(stream)

    def renew_soon(self, stream: Stream) -> None:
        """Ask within half of a permission's life, at a moment of chance, unless it is asked sooner by itself."""
        timer = self._timers.get(stream)
        seconds = random.uniform(0, self._longest / 2)  # noqa: S311  # no secret
        if timer is not None and timer.when() > asyncio.get_running_loop().time() + seconds:
            timer.cancel()
            self._come_back(stream, seconds)

    async def run(self) -> None:
        """Ask, until cancelled."""
        places = anyio.Semaphore(AT_ONCE)
        async with anyio.create_task_group() as tasks:
            while True:
                await self._has_work.wait()
                self._has_work = anyio.Event()
                while self._waiting:
                    await places.acquire()
                    if not self._waiting:
                        places.release()
                        break
                    stream = next(iter(self._waiting))
                    del self._waiting[stream]
                    tasks.start_soon(self._renew, stream, places)

    def _hold(self, stream: Stream) -> None:
        """Let a stream go on for what its permission says, and come back to it in time (N13)."""
        if stream.permission.expires == math.inf:
            stream.holds_until = math.inf
            return
        now = time.monotonic()
        stream.holds_until = min(stream.permission.expires, now + self._longest)
        life = stream.holds_until - now
        half = life / 2 + random.uniform(0, min(1.0, life / 20))  # noqa: S311  # no secret
        # A credential that ends leaves halves of halves, which are not asked for without end.
        self._come_back(stream, max(half, self._longest / _LEAST))

    def _come_back(self, stream: Stream, seconds: float) -> None:
        self._timers[stream] = asyncio.get_running_loop().call_later(max(0.0, seconds), self._fall_due, stream)

    def _fall_due(self, stream: Stream) -> None:
        self._timers.pop(stream, None)
        self._waiting[stream] = None
        self._has_work.set()

    async def _renew(self, stream: Stream, places: anyio.Semaphore) -> None:
        try:
            if stream.is_over:
                return
            with anyio.fail_after(_ASKED_WITHIN):
                goes_on = await stream.permission.renew()
        except (Unasked, TimeoutError):
            left = min(stream.holds_until - time.monotonic(), self._longest)
            self._come_back(stream, max(left / _TRIES, 0.05) * random.uniform(0.5, 1))  # noqa: S311  # no secret
        except Exception:
            self._log.exception("a permission was not renewed")
            stream.end(Exit.PERMISSION_ENDED)
        else:
            if not goes_on:
                stream.end(Exit.PERMISSION_ENDED)
            elif not stream.is_over:
                self._hold(stream)
                self._refresh(stream)
        finally:
            places.release()
