"""Work over thousands of streams in turns of the event loop, so that the first are told early and calls go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from mcpfleet.edge.streams.stream import Stream

_A_TURN: Final = 64
"""Streams that are told in one turn of the loop, some milliseconds of work with the writing that follows."""

Tell: TypeAlias = Callable[[Stream], None]


class FanOut:
    """Goes through streams for each thing that happens; what happens again meanwhile is told once more afterwards."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, Callable[[], None] | None] = {}
        """By what happened: what begins it anew, once it is done."""

    def begin(self, what: Hashable, streams: Iterable[Stream], make: Callable[[], Tell]) -> None:
        """Tell streams of something.

        Args:
            what: happened; the same is under way once at a time.
            streams: those that are to be told, read again where it begins anew.
            make: makes what tells one of them.
        """
        if what in self._under_way:
            self._under_way[what] = lambda: self.begin(what, streams, make)
            return
        self._under_way[what] = None
        self._turn(what, iter(list(streams)), make())

    def _turn(self, what: Hashable, left: Iterator[Stream], tell: Tell) -> None:
        now = list(islice(left, _A_TURN))
        try:
            for stream in now:
                tell(stream)
        except BaseException:
            del self._under_way[what]
            raise
        if len(now) == _A_TURN:
            asyncio.get_running_loop().call_soon(self._turn, what, left, tell)
        elif (again := self._under_way.pop(what)) is not None:
            again()
