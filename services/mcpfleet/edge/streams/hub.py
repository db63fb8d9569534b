"""All listen streams of an edge, and the ways by which changes reach those that want them."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.actor import consumer_span
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.hints import LISTS, OPERATOR_TOKEN, list_hints, resource_hint_subject, resource_key
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.snapshots import Snapshots
from mcpfleet.edge.streams.healing import Healing
from mcpfleet.edge.streams.interest import Interest
from mcpfleet.edge.streams.quota import Quota
from mcpfleet.edge.streams.renewals import Renewals
from mcpfleet.edge.streams.stating import Stating
from mcpfleet.edge.streams.stream import Exit, Stream
from mcpfleet.edge.streams.task_news import KEY, TaskNews
from mcpfleet.edge.streams.turns import Tell, Turns
from mcpfleet.telemetry.instruments import StreamInstruments
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.views.rights import holds
from mcpfleet.views.view import View
from mcpfleet.wire.errors import Rejection, no_capacity
from mcpfleet.wire.notices import LIST_CHANGED, resource_updated

_RETRY_AFTER: Final = 5
_HINT: Final = "hint.resource.{endpoint}.{pool}.{key}"
_PACE: Final = 0.02
"""Seconds between the ends of two streams of an edge that leaves, where there is time for it."""
_SHARE: Final = 0.75
"""The part of the drain time over which streams are ended: the last ones' clients need the rest."""


class Hub:
    """Knows each stream by its endpoint and by the URIs that it watches."""

    def __init__(
        self,
        bus: Bus,
        snapshots: Snapshots,
        settings: EdgeSettings,
        *,
        tasks: TaskNews,
        quota: Quota,
        tracer: Tracer,
        instruments: StreamInstruments,
        log: FilteringBoundLogger,
    ) -> None:
        self._tasks = tasks
        self._quota = quota
        self._interest = Interest(bus, self.on_resource, most=settings.watched_keys)
        self._renewals = Renewals(longest=settings.permission_lasts, refresh=self._refresh, log=log)
        self._healing = Healing(
            bus, self.streams, self.catch_up, rate=settings.catch_up_rate, lasts=settings.catch_up_lasts
        )
        self._bus = bus
        self._endpoints = tuple(settings.endpoints)
        self._snapshots = snapshots
        self._most = settings.max_streams
        self._room = settings.watched_room
        self._size = 0
        """Bytes of the URIs that are watched, as often as they are."""
        self._tracer = tracer
        self._instruments = instruments
        self._turns = Turns()
        self._count = 0
        self._by_endpoint: dict[str, set[Stream]] = {}
        self._by_uri: dict[tuple[str, str], set[Stream]] = {}
        self._stating = Stating(bus, lambda: self._by_uri, self._pool_of, interval=settings.watched_stated, log=log)
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
            await tasks.start(self._interest.run)
            await tasks.start(self._tasks.run)
            tasks.start_soon(self._quota.run)
            tasks.start_soon(self._renewals.run)
            tasks.start_soon(self._healing.run)
            tasks.start_soon(self._stating.run)
            task_status.started()

    def refusal(self, why: str) -> Rejection:
        """Count a stream that finds no room, and compose its answer."""
        self._instruments.refused.add(1, why)
        return no_capacity(_RETRY_AFTER)

    def join(self, stream: Stream) -> None:
        """Take a place for a stream, and let it hear of changes, until `leave` (S10, N11).

        Raises:
            Rejection: 503 where no place is left (MCPFLEET_MAX_STREAMS), or no room for what is watched
                (MCPFLEET_WATCHED_ROOM, MCPFLEET_WATCHED_TASKS).
        """
        size = _size(stream)
        if self._count >= self._most or self._size + size > self._room:
            raise self.refusal("edge" if self._count >= self._most else "room")
        if stream.honoured.task_ids and not self._tasks.join(stream):
            raise self.refusal("tasks")
        self._count += 1
        self._size += size
        self._by_endpoint.setdefault(stream.endpoint, set()).add(stream)
        self._watch(stream, stream.honoured.uris)
        self._show(stream)  # what its client sees may have changed since it asked

    def _watch(self, stream: Stream, uris: Iterable[str]) -> None:
        for uri in uris:
            watchers = self._by_uri.setdefault((stream.endpoint, uri), set())
            watchers.add(stream)
            self._stating.joined((stream.endpoint, uri))

    def _unwatch(self, stream: Stream, uris: Collection[str]) -> None:
        for uri in uris:
            watchers = self._by_uri[stream.endpoint, uri]
            watchers.discard(stream)
            if not watchers:
                del self._by_uri[stream.endpoint, uri]
                self._stating.left()
        self._interest.unwatch(stream.endpoint, uris)

    async def watch_others(self, stream: Stream, uris: tuple[str, ...]) -> None:
        """Have a stream that has joined watch these URIs from now on, instead of those that it watches.

        A stream for which there is no room ends (MCPFLEET_WATCHED_ROOM).

        Raises:
            BusError: not all of them are heard.
        """
        before = stream.honoured.uris
        more, less = [uri for uri in uris if uri not in before], [uri for uri in before if uri not in uris]
        if self._size + sum(map(len, more)) > self._room:
            stream.end(Exit.NO_ROOM)
            return
        stream.honoured = replace(stream.honoured, uris=uris)
        self._size += sum(map(len, more)) - sum(map(len, less))
        self._unwatch(stream, less)
        self._watch(stream, more)
        await self._interest.watch(stream.endpoint, more)

    async def hear(self, stream: Stream, capabilities: dict[str, Any]) -> None:
        """Hear the hints of what a stream that has joined watches; raises `BusError`.

        Args:
            stream: hears nothing yet.
            capabilities: its client's, for what it is told of tasks.
        """
        if stream.honoured.uris:
            await self._interest.watch(stream.endpoint, stream.honoured.uris)
        if stream.honoured.task_ids:
            await self._tasks.watch(stream, capabilities)

    async def accept(self, stream: Stream) -> None:
        """Go by the permission that a stream has now: show it its tasks, and keep the permission from ending."""
        if stream.honoured.task_ids:
            await self._tasks.accept(stream)
            if not stream.honoured:
                stream.end(Exit.NOTHING_HONOURED)
        self._renewals.add(stream)

    def leave(self, stream: Stream) -> None:
        """Undo `join`, and what was done for the stream."""
        self._renewals.remove(stream)
        self._count -= 1
        self._size -= _size(stream)
        self._by_endpoint[stream.endpoint].discard(stream)
        self._unwatch(stream, stream.honoured.uris)
        self._tasks.unwatch(stream)

    def streams(self) -> list[Stream]:
        """All that have joined."""
        return [stream for streams in self._by_endpoint.values() for stream in streams]

    # -- what changes -------------------------------------------------------------------------------------------------

    def on_resource(self, endpoint: str, pool: str, uri: str, cause: TraceContext | None = None) -> None:
        """Tell the streams that watch a URI, where the pool that speaks serves it to their callers.

        Args:
            endpoint: the endpoint's name.
            pool: who says that it has changed.
            uri: what is read.
            cause: the work that changed it, where that is recorded: what this edge does of it is shown with it.
        """
        watchers = self._by_uri.get((endpoint, uri))
        if watchers is None:
            return
        with self._told_of(endpoint, pool, uri, cause):
            self._turns.begin((endpoint, pool, uri), watchers, lambda: _telling(pool, uri))

    def _told_of(
        self, endpoint: str, pool: str, uri: str, cause: TraceContext | None
    ) -> AbstractContextManager[object]:
        """The span of one edge's telling, whatever the number of streams; none where nobody records the change."""
        if cause is None or not cause.sampled:
            return nullcontext()
        subject = resource_hint_subject(endpoint, pool, resource_key(uri))
        return consumer_span(self._tracer, _HINT, subject, cause, links=[cause])

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
        self._stating.catalog_changed()

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
        for stream in self.streams():
            if is_policy:
                self._renewals.renew_soon(stream)
            elif matches(stream.permission.principal):
                stream.fence()
                self._renewals.renew_now(stream)

    def _refresh(self, stream: Stream) -> None:
        """Go on after a renewal, as whom the permission is given to now."""
        self._show(stream)
        stream.lift(may_watch=lambda key: self._may_tell(stream, key))

    def catch_up(self, stream: Stream, uri: str) -> None:
        """Tell a stream that a URI, or what lists return, may have changed, where it may still hear of it."""
        if uri == LISTS:
            self._tell_of_lists(None, stream)
        elif self._may_watch(stream, uri):
            stream.offer(uri, resource_updated(uri))

    def _may_tell(self, stream: Stream, key: str) -> bool:
        """Whether what waits may still be told; a task is read again, as whom the stream belongs to now."""
        if key.startswith(KEY):
            self._tasks.tell_again(stream, key.removeprefix(KEY))
            return False
        return self._may_watch(stream, key)

    def _may_watch(self, stream: Stream, uri: str) -> bool:
        return covers(_needed(stream.view, uri), stream.permission.principal)

    def _pool_of(self, uri: str, watchers: Iterable[Stream]) -> str | None:
        """The pool that serves a URI to one of those who watch it."""
        for stream in watchers:
            target = stream.view.find_resource(uri)
            if target is not None and self._may_watch(stream, uri):
                return target.listed.pool
        return None

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


def _size(stream: Stream) -> int:
    return sum(map(len, stream.honoured.uris))


def _telling(pool: str, uri: str) -> Tell:
    """Make what tells streams that a pool says that a URI has changed."""
    notice = resource_updated(uri)
    known: dict[int, tuple[View, frozenset[str] | None]] = {}
    """By the view's identity, for most streams share one; the view itself keeps that from being another's."""

    def tell(stream: Stream) -> None:
        view = stream.view
        found = known.get(id(view))
        if found is None:
            found = known[id(view)] = view, _needed(view, uri, pool)
        if covers(found[1], stream.permission.principal):
            stream.offer(uri, notice)

    return tell


def _needed(view: View, uri: str, pool: str | None = None) -> frozenset[str] | None:
    """The scopes for reading a URI; none where it is not there for the view's callers, or is not the pool's."""
    target = view.find_resource(uri)
    if target is None or pool not in (None, OPERATOR_TOKEN, target.listed.pool):
        return None
    return frozenset(target.listed.definition.scopes)


def lists_for(stream: Stream, pool: str | None) -> bool:
    """Whether a pool, or any, has a list for a stream's caller: what is in it, its worker says."""
    return any(
        pool in (None, target.listed.pool)
        and covers(frozenset(target.listed.definition.scopes), stream.permission.principal)
        for target in stream.view.targets["lister"].values()
    )


def covers(needed: frozenset[str] | None, principal: Principal) -> bool:
    """Whether somebody may hear of what needs these scopes."""
    return needed is not None and (not needed or holds(principal, needed))
