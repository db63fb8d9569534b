"""Which streams watch which URIs, and how a change of one reaches those of them that may hear of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.actor import consumer_span
from mcpfleet.bus.bus import Bus
from mcpfleet.contracts.catalog import Listed
from mcpfleet.contracts.hints import OPERATOR_TOKEN, resource_hint_subject, resource_key
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.interest import Interest
from mcpfleet.edge.streams.stream import FanOut, Stream, Tell
from mcpfleet.edge.streams.uri_permits import UriPermit, UriPermits
from mcpfleet.edge.streams.watch_reporter import WatchReporter
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.views.rights import holds
from mcpfleet.views.view import View
from mcpfleet.wire.notices import resource_updated

_HINT: Final = "hint.resource.{endpoint}.{pool}.{key}"


class Watchers:
    """Knows the streams of each URI, each with its caller's permit."""

    def __init__(
        self,
        bus: Bus,
        settings: EdgeSettings,
        *,
        permits: UriPermits,
        turns: FanOut,
        tracer: Tracer,
        log: FilteringBoundLogger,
    ) -> None:
        self._permits = permits
        self._turns = turns
        self._tracer = tracer
        self._room = settings.watched_room
        self._size = 0
        """Bytes of the URIs that are watched, as often as they are."""
        self._by_uri: dict[tuple[str, str], dict[Stream, UriPermit]] = {}
        self._interest = Interest(bus, self.on_resource, most=settings.watched_keys)
        self._stating = WatchReporter(
            bus, lambda: self._by_uri, self._pool_of, interval=settings.watched_stated, log=log
        )
        permits.on_decision(self._on_decision)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Ask who may hear, and tell pools what is watched, until cancelled."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._interest.run)
            await tasks.start(self._permits.run)
            tasks.start_soon(self._stating.run)
            task_status.started()

    # -- watching -----------------------------------------------------------------------------------------------------

    def has_room(self, uris: Collection[str]) -> bool:
        """Whether there is memory for these URIs (MCPFLEET_WATCHED_ROOM)."""
        return self._size + sum(map(len, uris)) <= self._room

    def add(self, stream: Stream, uris: Collection[str]) -> None:
        """Have a stream watch URIs, until `remove`."""
        self._size += sum(map(len, uris))
        self._watch(stream, uris)

    def _watch(self, stream: Stream, uris: Collection[str]) -> None:
        for permit in self._permits.watch(stream, uris):
            self._by_uri.setdefault((stream.endpoint, permit.uri), {})[stream] = permit
            self._stating.joined((stream.endpoint, permit.uri))

    def remove(self, stream: Stream, uris: Collection[str]) -> None:
        """Have a stream watch them no more, whether or not `hear` came to its end."""
        self._size -= sum(map(len, uris))
        for uri in uris:
            watchers = self._by_uri[stream.endpoint, uri]
            self._permits.unwatch(stream, watchers.pop(stream))
            if not watchers:
                del self._by_uri[stream.endpoint, uri]
                self._stating.left()
        self._interest.unwatch(stream.endpoint, uris)

    async def hear(self, stream: Stream, uris: Collection[str]) -> None:
        """Hear the hints of URIs that a stream watches; raises `BusError`."""
        if uris:
            await self._interest.watch(stream.endpoint, uris)

    # -- who may hear -------------------------------------------------------------------------------------------------

    def want(self, stream: Stream, uris: Collection[str]) -> None:
        """Have it decided soon which of its URIs a stream may hear of."""
        self._permits.want(self._of(stream, uris))

    def _of(self, stream: Stream, uris: Collection[str]) -> list[UriPermit]:
        """The permits by which a stream watches URIs; of one that has left there are none."""
        found = [self._by_uri.get((stream.endpoint, uri), {}).get(stream) for uri in uris]
        return [permit for permit in found if permit is not None]

    async def leave_out(self, stream: Stream) -> None:
        """Leave out what a stream's caller may not read (S21).

        A URI without a decision in time is honoured, and nothing is told of it before there is one (S22).

        Raises:
            ClientGone: the client has left meanwhile.
        """
        self.watch_anew(stream)
        if asked := self._permits.want(self._of(stream, stream.honoured.uris)):
            await stream.while_there(partial(self._permits.wait, asked))
        permits = self._of(stream, stream.honoured.uris)  # as whom it watches now
        refused = [permit.uri for permit in permits if permit.is_refused]
        if refused:
            left = tuple(permit.uri for permit in permits if not permit.is_refused)
            self.remove(stream, refused)
            stream.honoured = replace(stream.honoured, uris=left)

    def watch_anew(self, stream: Stream) -> None:
        """Have a stream watch as whom its permission is given to now: that may be somebody with other scopes."""
        uris = stream.honoured.uris
        first, principal = self._of(stream, uris[:1]), stream.permission.principal
        if not first or first[0].principal is principal or first[0].principal == principal:
            return
        former = self._of(stream, uris)
        self._watch(stream, uris)
        for permit in former:
            self._permits.unwatch(stream, permit)

    def may_hear(self, stream: Stream, uri: str) -> bool:
        """Whether a stream may be told of a URI now; where nobody knows, it is told once that was decided."""
        permits = self._of(stream, (uri,))
        return bool(permits) and self._may_hear(stream, permits[0], _serving(stream.view, uri))

    def _may_hear(self, stream: Stream, permit: UriPermit, listed: Listed | None) -> bool:
        if listed is None or not covers(listed.definition, stream.permission.principal):
            return False
        return self._permits.may_tell(permit, listed.digest)

    def catalog_changed(self, endpoint: str) -> None:
        """Hear that an endpoint offers something else: what serves a URI, and who may read it, may be others."""
        self._stating.catalog_changed()
        self._permits.catalog_changed(endpoint)

    def _pool_of(self, uri: str, watchers: Mapping[Stream, UriPermit]) -> str | None:
        """The pool that serves a URI to one of those who watch it, and whom its resource lets read."""
        for stream, permit in watchers.items():
            target = stream.view.find_resource(uri) if permit.may_read else None
            if target is not None and covers(target.listed.definition, stream.permission.principal):
                return target.listed.pool
        return None

    # -- telling ------------------------------------------------------------------------------------------------------

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
            self._turns.begin((endpoint, pool, uri), watchers, lambda: self._telling(pool, uri, watchers))

    def _told_of(
        self, endpoint: str, pool: str, uri: str, cause: TraceContext | None
    ) -> AbstractContextManager[object]:
        """The span of one edge's telling, whatever the number of streams; none where nobody records the change."""
        if cause is None or not cause.sampled:
            return nullcontext()
        subject = resource_hint_subject(endpoint, pool, resource_key(uri))
        return consumer_span(self._tracer, _HINT, subject, cause, links=[cause])

    def _on_decision(self, permit: UriPermit, has_news: bool) -> None:
        """Tell a caller's streams what waited for a decision, or drop what waits in them still."""
        uri = permit.uri
        if not permit.may_read:
            for stream in permit.streams:
                stream.withdraw(uri)
            return
        self._stating.joined((permit.caller.key[0], uri))
        if has_news:
            watchers = dict.fromkeys(permit.streams, permit)
            self._turns.begin(permit, watchers, lambda: self._telling(OPERATOR_TOKEN, uri, watchers))

    def _telling(self, pool: str, uri: str, watchers: Mapping[Stream, UriPermit]) -> Tell:
        """Make what tells streams that a pool says that a URI has changed, where their callers may hear of it."""
        notice = resource_updated(uri)
        known: dict[int, tuple[View, Listed | None]] = {}
        """By the view's identity, for most streams share one; the view itself keeps that from being another's."""
        told: tuple[View, UriPermit] | None = None
        """By which view and permit the last stream was told: those of one caller share both."""

        def tell(stream: Stream) -> None:
            nonlocal told
            view, permit = stream.view, watchers.get(stream)
            if told is None or permit is not told[1] or view is not told[0]:
                found = known.get(id(view))
                if found is None:
                    found = known[id(view)] = view, _serving(view, uri, pool)
                if permit is None or not self._may_hear(stream, permit, found[1]):
                    return
                told = view, permit
            stream.offer(uri, notice)

        return tell


def _serving(view: View, uri: str, pool: str = OPERATOR_TOKEN) -> Listed | None:
    """The listed resource that serves a URI; none where the view's callers have none there, or another pool's."""
    target = view.find_resource(uri)
    return None if target is None or pool not in (OPERATOR_TOKEN, target.listed.pool) else target.listed


def covers(definition: Definition, principal: Principal) -> bool:
    """Whether somebody's scopes are those that a definition needs."""
    return not definition.scopes or holds(principal, definition.scopes)
