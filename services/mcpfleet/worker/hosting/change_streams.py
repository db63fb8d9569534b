"""The streams in which a source of 2026-07-28 tells of changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import anyio
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.worker.hosting.link import Facts, Listener, Turned
from mcpfleet.worker.upstream import NotSent, UpstreamError, UpstreamLost

LISTEN: Final = "subscriptions/listen"
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
"""Seconds between two streams that a source ends; each pause is twice the one before."""


@dataclass(eq=False)
class _Stream:
    """A stream of changes from a source of 2026-07-28."""

    wanted: Mapping[str, Any]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    began: float = field(default_factory=anyio.current_time)
    is_acknowledged: bool = False
    end: Literal["ended", "refused"] | None = None
    """How it ended by itself; no stream will work after `refused`."""


class _Connection(Protocol):
    """The connection that carries the streams."""

    facts: Facts

    @property
    def is_over(self) -> bool:
        """Whether it takes no request any more."""

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Make a request; raises `UpstreamError`, `NotSent` or `UpstreamLost`."""


class ChangeStreams:
    """The streams of one connection: one, or two while one takes over from the other."""

    def __init__(self, connection: _Connection, listener: Listener) -> None:
        self._connection = connection
        self._listener = listener
        self._watched: frozenset[str] = frozenset()
        self._wakes = AutoResetEvent()
        self._opening: _Stream | None = None

    def watch(self, uris: frozenset[str]) -> None:
        """Hear of changes of these resources."""
        self._watched = uris
        self._wakes.set()

    def acknowledged(self) -> None:
        """Hear that the source has taken the newest stream."""
        if self._opening is not None:
            self._opening.is_acknowledged = True
            self._wakes.set()

    async def run(self) -> None:
        """Hear of changes from a source of 2026-07-28, until cancelled; a stream that ends is opened again.

        A stream for other resources is opened before the former ends, so that no change falls between them.
        """
        pause, streams = _FIRST_PAUSE, list[_Stream]()
        async with anyio.create_task_group() as tasks:
            while not self._connection.is_over:
                wanted = self._filter()
                newest = streams[-1] if streams else None
                if newest is not None and newest.end is not None:
                    streams.pop()
                    if newest.end == "refused":
                        break
                    if anyio.current_time() - newest.began > _LONGEST_PAUSE:  # it was well for long
                        pause = _FIRST_PAUSE
                    await anyio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
                    self.missed()
                    continue
                if wanted != (newest.wanted if newest else {}):
                    newest = _Stream(wanted)
                    streams.append(newest)
                    if wanted:
                        tasks.start_soon(self._hold, newest)
                kept = 1 if newest is None or newest.is_acknowledged or not newest.wanted else 2
                for former in streams[:-kept]:
                    former.scope.cancel()
                streams = streams[-kept:]
                await self._wakes.wait()
            tasks.cancel_scope.cancel()

    def missed(self) -> None:
        """Take everything for changed, since a stream ended by itself: what changed meanwhile was not told."""
        self._listener.lists_changed()
        for uri in self._watched:
            self._listener.resource_updated(uri)

    def _filter(self) -> dict[str, Any]:
        kinds = ("tools", "prompts", "resources")
        wanted: dict[str, Any] = {
            f"{kind}ListChanged": True for kind in kinds if self._connection.facts.has(kind, "listChanged")
        }
        return wanted | ({"resourceSubscriptions": sorted(self._watched)} if self._watched else {})

    async def _hold(self, stream: _Stream) -> None:
        """Hold a stream until it ends."""
        self._opening = stream
        with stream.scope:
            try:
                await self._connection.request(LISTEN, {"notifications": stream.wanted})
                stream.end = "ended"
            except Turned:
                stream.end = "refused"
            except UpstreamError as error:
                stream.end = "refused" if error.code in (METHOD_NOT_FOUND, INVALID_PARAMS) else "ended"
            except (NotSent, UpstreamLost):
                stream.end = "refused" if self._connection.is_over else "ended"
        self._wakes.set()
