"""Makes up for resource hints that were lost with the link to NATS: it tells subscribed clients to read again.

Catalogs recover by their numbers. Resources and the results of listers have no numbers. So each stream gets one change
for each URI that it watches, and one for its lists: slowly, and for a limited time. `ttlMs` bounds how long a client
trusts what it read otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

import anyio

from mcpfleet.bus.bus import Bus
from mcpfleet.contracts.hints import LISTS
from mcpfleet.edge.streams.stream import Stream

_PAUSE: Final = 0.1
"""Seconds between two batches."""


class Recovery:
    """Waits for gaps in the link, and catches up after each."""

    def __init__(
        self,
        bus: Bus,
        streams: Callable[[], list[Stream]],
        catch_up: Callable[[Stream, str], None],
        *,
        rate: int,
        lasts: float,
    ) -> None:
        """Watch the link.

        Args:
            bus: the edge's.
            streams: returns the open streams.
            catch_up: tells a stream that a URI, or the result of its lists, may have changed.
            rate: changes a second, for all streams together.
            lasts: seconds after which catching up ends.
        """
        self._streams = streams
        self._catch_up = catch_up
        self._batch = max(1, round(rate * _PAUSE))
        self._lasts = lasts
        self._has_gap = False
        self._gap_is_over = anyio.Event()
        bus.on_link(self._on_link)

    def _on_link(self, is_up: bool) -> None:
        if not is_up:
            self._has_gap = True
        elif self._has_gap:
            self._has_gap = False
            self._gap_is_over.set()

    async def run(self) -> None:
        """Catch up after each gap, until cancelled; a gap that comes meanwhile begins it again."""
        while True:
            await self._gap_is_over.wait()
            self._gap_is_over = anyio.Event()
            with anyio.move_on_after(self._lasts):
                await self._tell()

    async def _tell(self) -> None:
        for number, (stream, uri) in enumerate(_turns(self._streams()), 1):
            if self._gap_is_over.is_set():
                return
            if not stream.is_over:
                self._catch_up(stream, uri)
            if number % self._batch == 0:
                await anyio.sleep(_PAUSE)


def _watched(stream: Stream) -> list[str]:
    return [*stream.honoured.uris, *([LISTS] if "resources" in stream.honoured.lists else [])]


def _turns(streams: list[Stream]) -> Iterator[tuple[Stream, str]]:
    """Yield one URI of each stream in turn, then the next of each, in random order."""
    left = [(stream, watched) for stream in streams if (watched := _watched(stream))]
    while left:
        random.shuffle(left)
        for stream, uris in left:
            yield stream, uris.pop(random.randrange(len(uris)))  # noqa: S311  # no secret
        left = [(stream, uris) for stream, uris in left if uris]
