"""All listen streams of an edge, and the ways by which changes reach those that want them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.hints import LISTS, list_hints
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.quota import Quota
from mcpfleet.edge.streams.recovery import Recovery
from mcpfleet.edge.streams.renewals import Renewals
from mcpfleet.edge.streams.stream import Exit, FanOut, Stream
from mcpfleet.edge.streams.task_updates import KEY, TaskUpdates
from mcpfleet.edge.streams.uri_permits import UriPermits
from mcpfleet.edge.streams.watchers import Watchers, covers
from mcpfleet.process.host import connections_within
from mcpfleet.telemetry.instruments import StreamInstruments
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.wire.errors import Rejection, no_capacity
from mcpfleet.wire.notices import LIST_CHANGED, resource_updated

_RETRY_AFTER: Final = 5
_PACE: Final = 0.02
"""Seconds between the ends of two streams of an edge that leaves, where there is time for it."""
_SHARE: Final = 0.75
"""The part of the drain time over which streams are ended: the last ones' clients need the rest."""
_OF_CONNECTIONS: Final = 2
"""Streams over HTTP/1.1 may have one of so many connections."""


class Hub:
    """Knows each stream by its endpoint and by the URIs that it watches."""

    def __init__(
        self,
        bus: Bus,
        snapshots: Snapshots,
        settings: EdgeSettings,
        *,
        tasks: TaskUpdates,
        permits: UriPermits,
        quota: Quota,
        tracer: Tracer,
        instruments: StreamInstruments,
        log: FilteringBoundLogger,
    ) -> None:
        self._tasks = tasks
        self._permits = permits
        self._quota = quota
        self._renewals = Renewals(longest=settings.permission_lasts, refresh=self._refresh, log=log)
        self._healing = Recovery(
            bus, self.streams, self.catch_up, rate=settings.catch_up_rate, lasts=settings.catch_up_lasts
        )
        self._bus = bus
        self._endpoints = tuple(settings.endpoints)
        self._snapshots = snapshots
        self._most = settings.max_streams
        self._most_connections = max(1, connections_within(settings.max_connections) // _OF_CONNECTIONS)
        self._instruments = instruments
        self._turns = FanOut()
        self._watchers = Watchers(bus, settings, permits=permits, turns=self._turns, tracer=tracer, log=log)
        self._count = 0
        self._connections = 0
        """The streams that have a connection of their own."""
        self._by_endpoint: dict[str, set[Stream]] = {}
        self.is_draining = False
        """A stream that begins now is acknowledged and ended at once (S17)."""
        snapshots.on_change(self.on_catalog)
        instruments.open.observe(lambda: self._count)

    def __len__(self) -> int:
        return self._count

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Do what streams need in the background, until cancelled."""
        for endpoint in self._endpoints:
            await self._bus.subscribe(list_hints(endpoint), self._on_list_hint)
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._watchers.run)
            await tasks.start(self._tasks.run)
            tasks.start_soon(self._quota.run)
            tasks.start_soon(self._renewals.run)
            tasks.start_soon(self._healing.run)
            task_status.started()

    def refusal(self, why: str) -> Rejection:
        """Count a stream that finds no room, and compose its answer."""
        self._instruments.refused.add(1, why)
        return no_capacity(_RETRY_AFTER)

    def join(self, stream: Stream) -> None:
        """Take a place for a stream, and let it hear of changes, until `leave` (S10, N11).

        Raises:
            Rejection: 503 where no place is left (MCPFLEET_MAX_STREAMS; half of MCPFLEET_MAX_CONNECTIONS), or no room
                for what is watched (MCPFLEET_WATCHED_ROOM, MCPFLEET_WATCHED_TASKS).
        """
        if self._is_full(stream) or not self._watchers.has_room(stream.honoured.uris):
            raise self.refusal("edge" if self._is_full(stream) else "room")
        if stream.honoured.task_ids and not self._tasks.join(stream):
            raise self.refusal("tasks")
        self._count += 1
        self._connections += stream.has_connection
        self._by_endpoint.setdefault(stream.endpoint, set()).add(stream)
        self._watchers.add(stream, stream.honoured.uris)
        self._show(stream)  # what its client sees may have changed since it asked

    def _is_full(self, stream: Stream) -> bool:
        """Whether there are too many streams, or too many that leave no connection for calls (N18)."""
        if self._count >= self._most:
            return True
        return stream.has_connection and self._connections >= self._most_connections

    async def watch_others(self, stream: Stream, uris: tuple[str, ...]) -> None:
        """Have a stream that has joined watch these URIs from now on, instead of those that it watches.

        A stream for which there is no room ends (MCPFLEET_WATCHED_ROOM).

        Raises:
            BusError: not all of them are heard.
        """
        before = stream.honoured.uris
        more, less = [uri for uri in uris if uri not in before], [uri for uri in before if uri not in uris]
        if not self._watchers.has_room(more):
            stream.end(Exit.NO_ROOM)
            return
        stream.honoured = replace(stream.honoured, uris=uris)
        self._watchers.remove(stream, less)
        self._watchers.add(stream, more)
        await self._watchers.hear(stream, more)
        self._watchers.want(stream, more)

    async def hear(self, stream: Stream, capabilities: dict[str, Any]) -> None:
        """Hear the hints of what a stream that has joined watches; raises `BusError`.

        Args:
            stream: hears nothing yet.
            capabilities: its client's, for what it is told of tasks.
        """
        await self._watchers.hear(stream, stream.honoured.uris)
        if stream.honoured.task_ids:
            await self._tasks.watch(stream, capabilities)

    async def accept(self, stream: Stream) -> None:
        """Go by the permission that a stream has now: leave out what it may not hear of, and keep it from ending.

        Raises:
            Rejection: 504 where nobody can say of its tasks.
            ClientGone: the client has left meanwhile.
        """
        if stream.honoured.task_ids:
            await self._tasks.accept(stream)
        if stream.honoured.uris:
            await self._watchers.leave_out(stream)
        if not stream.honoured:
            stream.end(Exit.NOTHING_HONOURED)
        self._renewals.add(stream)

    def leave(self, stream: Stream) -> None:
        """Undo `join`, and what was done for the stream."""
        self._renewals.remove(stream)
        self._count -= 1
        self._connections -= stream.has_connection
        self._by_endpoint[stream.endpoint].discard(stream)
        self._watchers.remove(stream, stream.honoured.uris)
        self._tasks.unwatch(stream)

    def streams(self) -> list[Stream]:
        """All that have joined."""
        return [stream for streams in self._by_endpoint.values() for stream in streams]

    # -- what changes -------------------------------------------------------------------------------------------------

    def _on_list_hint(self, message: Incoming) -> None:
        """Tell the streams that listen to lists, where the pool that speaks lists something for their callers."""
        _, _, endpoint, pool = message.subject.split(".")
        streams = self._by_endpoint.get(endpoint, ())
        self._turns.begin((endpoint, pool, LISTS), streams, lambda: partial(self._tell_of_lists, pool))

    def _tell_of_lists(self, pool: str | None, stream: Stream) -> None:
        if "resources" in stream.honoured.lists and lists_for(stream, pool):
            stream.offer("resources", LIST_CHANGED["resources"])

    def on_catalog(self, endpoint: str) -> None:
        """Show each stream of an endpoint the newest view of its caller (S15)."""
        self._turns.begin(endpoint, self._by_endpoint.get(endpoint, ()), lambda: self._show)
        self._watchers.catalog_changed(endpoint)

    def _show(self, stream: Stream) -> None:
        view = self._snapshots.view(stream.endpoint, stream.permission.principal)
        if view is not None and view is not stream.view:
            stream.see(view)

    def revoke(self, matches: Callable[[Principal], bool]) -> None:
        """Tell streams nothing more until it was asked whether their permissions go on (S3).

        A change that concerns everybody is asked about bit by bit, over half of a permission's life, and holds nobody
        up meanwhile: it would be all streams of all edges at once.

        Args:
            matches: says whose permission may have ended.
        """
        is_policy = matches(ANONYMOUS)
        self._permits.take_back(matches, spread=is_policy)
        for stream in self.streams():
            if is_policy:
                self._renewals.renew_soon(stream)
            elif matches(stream.permission.principal):
                stream.fence()
                self._renewals.renew_now(stream)

    def end_keys(self, is_over: Callable[[str | None, float], bool]) -> None:
        """Tell the streams nothing more whose credentials are good by a key that ended, until it was asked (S3).

        Args:
            is_over: says it of a key, and of the moment at which its credential was asked about.
        """
        for stream in self.streams():
            if is_over(stream.permission.key, stream.permission.asked_at):
                stream.fence()
                self._renewals.renew_now(stream)

    def _refresh(self, stream: Stream) -> None:
        """Go on after a renewal, as whom the permission is given to now."""
        self._show(stream)
        self._watchers.watch_anew(stream)
        stream.lift(may_watch=lambda key: self._may_tell(stream, key))

    def catch_up(self, stream: Stream, uri: str) -> None:
        """Tell a stream that a URI, or what lists return, may have changed, where it may still hear of it."""
        if uri == LISTS:
            self._tell_of_lists(None, stream)
        elif self._watchers.may_hear(stream, uri):
            stream.offer(uri, resource_updated(uri))

    def _may_tell(self, stream: Stream, key: str) -> bool:
        """Whether what waits may still be told; a task is read again, as whom the stream belongs to now."""
        if key.startswith(KEY):
            self._tasks.tell_again(stream, key.removeprefix(KEY))
            return False
        return self._watchers.may_hear(stream, key)

    # -- leaving ------------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Begin to leave: streams that come from now on are acknowledged and ended at once."""
        self.is_draining = True

    async def end_all(self, within: float) -> None:
        """End every stream, in an order by chance and spread, so that not all clients come to another edge at once.

        Args:
            within: the seconds that the edge has for all that it still does.
        """
        streams = self.streams()
        random.shuffle(streams)
        pause = min(_PACE, _SHARE * within / max(1, len(streams)))
        for stream in streams:
            stream.end(Exit.SHUTDOWN)
            await anyio.sleep(pause)

    def end_now(self) -> None:
        """End every stream at once."""
        for stream in self.streams():
            stream.end(Exit.SHUTDOWN)


def lists_for(stream: Stream, pool: str | None) -> bool:
    """Whether a pool, or any, has a list for a stream's caller: what is in it, its worker says."""
    return any(
        pool in (None, target.listed.pool) and covers(target.listed.definition, stream.permission.principal)
        for target in stream.view.targets["lister"].values()
    )
