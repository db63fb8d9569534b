"""Knows which streams watch which URIs, and sends a change to those streams that may receive it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskStatus
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.actor import hint_span
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.catalog import Listed
from mcpfleet.contracts.hints import OPERATOR_TOKEN, OwnChange, resource_hint_subject, resource_key
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.permits import PermitsChanged, permits_hint_subject
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.interest import Interest
from mcpfleet.edge.streams.stream import FanOut, Stream, Tell
from mcpfleet.edge.streams.uri_permit import UriPermit
from mcpfleet.edge.streams.uri_permits import UriPermits
from mcpfleet.edge.streams.watch_reporter import WatchReporter
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.views.view import View
from mcpfleet.wire.notices import resource_updated

_HINT: Final = "hint.resource.{endpoint}.{pool}.{key}"
_MOST_HEARD: Final = 4_096
"""Workers whose newest change of permits is remembered; that of a forgotten one counts as new."""


class Watchers:
    """Knows the streams of each URI, each with its caller's permit."""

    def __init__(
        self,
        bus: Bus,
        permits: UriPermits,
        settings: EdgeSettings,
        *,
        tracer: Tracer,
        log: FilteringBoundLogger,
    ) -> None:
        self.permits = permits
        self._bus = bus
        self._log = log
        self._heard: OrderedDict[tuple[str, str], int] = OrderedDict()
        """The newest number of changed permits that was heard, by pools and workers."""
        self._fan_out = FanOut()
        self._tracer = tracer
        self._budget = settings.watched_room
        self._size = 0
        """Total URI bytes, counted per stream."""
        self._by_uri: dict[tuple[str, str], dict[Stream, UriPermit]] = {}
        self._interest = Interest(bus, self.on_resource, most=settings.watched_keys)
        self._reporter = WatchReporter(
            bus, lambda: self._by_uri, self._pool_of, interval=settings.watched_stated, log=log
        )
        permits.on_decision(self._on_decision)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Decide what callers may receive, and report to pools what is watched, until cancelled."""
        await self._bus.subscribe(permits_hint_subject("*"), self._on_permits)
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._interest.run)
            await tasks.start(self.permits.run)
            tasks.start_soon(self._reporter.run)
            task_status.started()

    # -- watching -----------------------------------------------------------------------------------------------------

    def fits(self, uris: Collection[str], beside: int = 0) -> bool:
        """Return whether there is memory for these URIs, beside so many bytes (MCPFLEET_WATCHED_ROOM)."""
        return self._size + beside + sum(map(len, uris)) <= self._budget

    def add(self, stream: Stream, uris: Collection[str]) -> None:
        """Have a stream watch URIs, until `remove`."""
        self._size += sum(map(len, uris))
        self._watch(stream, uris)

    def _watch(self, stream: Stream, uris: Collection[str]) -> None:
        for permit in self.permits.watch(stream, uris):
            self._by_uri.setdefault((stream.endpoint, permit.name), {})[stream] = permit
            self._reporter.note_watched((stream.endpoint, permit.name))

    def remove(self, stream: Stream, uris: Collection[str]) -> None:
        """Undo `add` and `subscribe`, whether that has returned or was cancelled."""
        self._size -= sum(map(len, uris))
        for uri in uris:
            watchers = self._by_uri[stream.endpoint, uri]
            self.permits.unwatch(stream, watchers.pop(stream))
            if not watchers:
                del self._by_uri[stream.endpoint, uri]
                self._reporter.note_unwatched()
        self._interest.unwatch(stream.endpoint, uris)

    async def subscribe(self, stream: Stream, uris: Collection[str]) -> None:
        """Subscribe to the hints of URIs that a stream watches; raises `BusError`."""
        if uris:
            await self._interest.watch(stream.endpoint, uris)

    # -- permits ------------------------------------------------------------------------------------------------------

    def want(self, stream: Stream, uris: Collection[str]) -> None:
        """Have permits for some of a stream's URIs decided soon."""
        self.permits.want(self._of(stream, uris))

    def _of(self, stream: Stream, uris: Collection[str]) -> list[UriPermit]:
        """Return a stream's permits for URIs; none for a stream that has left."""
        permits = [self._by_uri.get((stream.endpoint, uri), {}).get(stream) for uri in uris]
        return [permit for permit in permits if permit is not None]

    async def remove_unreadable(self, stream: Stream) -> None:
        """Remove the URIs that a stream's caller may not read (S21).

        A URI without a decision in time is honoured, but its changes wait for the decision (S22).

        Raises:
            ClientGone: the client has left meanwhile.
        """
        self.change_principal(stream)
        if pending := self.permits.want(self._of(stream, stream.honoured.uris)):
            await stream.while_there(partial(self.permits.wait, pending))
        permits = self._of(stream, stream.honoured.uris)  # those of its principal now
        refused = [permit.name for permit in permits if permit.is_refused]
        if refused:
            readable = tuple(permit.name for permit in permits if not permit.is_refused)
            self.remove(stream, refused)
            stream.honoured = replace(stream.honoured, uris=readable)

    def change_principal(self, stream: Stream) -> None:
        """Watch a stream's URIs as the principal of its newest lease, which may have other scopes."""
        uris = stream.honoured.uris
        first, principal = self._of(stream, uris[:1]), stream.lease.principal
        if not first or first[0].principal is principal or first[0].principal == principal:
            return
        former = self._of(stream, uris)
        self._watch(stream, uris)
        for permit in former:
            self.permits.unwatch(stream, permit)

    def let_pass(self, stream: Stream, uri: str) -> bool:
        """Let a change of a URI pass, or hold it until its permit is decided; return whether it passes."""
        permits = self._of(stream, (uri,))
        return bool(permits) and self._let_pass(stream, permits[0], _serving(stream.view, uri))

    def waits(self, stream: Stream, uri: str) -> bool:
        """Return whether a change of a URI waits for a decision on its permit."""
        permits = self._of(stream, (uri,))
        return bool(permits) and permits[0].has_change

    def _let_pass(self, stream: Stream, permit: UriPermit, listed: Listed | None) -> bool:
        if listed is None or not covers(listed.definition, stream.lease.principal):
            return False
        return self.permits.let_pass(permit, listed.digest)

    def catalog_changed(self, endpoint: str) -> None:
        """Note a new snapshot: other definitions may serve an endpoint's URIs, and other callers may read them."""
        self._reporter.catalog_changed()
        self.permits.catalog_changed(endpoint)

    def _pool_of(self, uri: str, watchers: Mapping[Stream, UriPermit]) -> str | None:
        """Return the pool that serves a URI to one of its watchers who may read it."""
        for stream, permit in watchers.items():
            target = stream.view.find_resource(uri) if permit.may_read else None
            if target is not None and covers(target.listed.definition, stream.lease.principal):
                return target.listed.pool
        return None

    # -- changes ------------------------------------------------------------------------------------------------------

    def on_resource(self, endpoint: str, pool: str, uri: str, cause: TraceContext | None = None) -> None:
        """Send a change of a URI to the streams that watch it, where the hint's pool serves it to their callers.

        Args:
            endpoint: the endpoint's name.
            pool: the pool that sent the hint.
            uri: names the resource.
            cause: the trace of the change, where it is recorded; this edge's part is added to it.
        """
        watchers = self._by_uri.get((endpoint, uri))
        if watchers is None:
            return
        # One span for all streams together.
        with hint_span(self._tracer, _HINT, lambda: resource_hint_subject(endpoint, pool, resource_key(uri)), cause):
            self._fan_out.begin((endpoint, pool, uri), watchers, lambda: self._sender(pool, uri, watchers))

    def _on_permits(self, message: Incoming) -> None:
        """Fence the URIs of a pool whose permits decide otherwise now (X52)."""
        pool = message.subject.rpartition(".")[2]
        try:
            hint = PermitsChanged.model_validate_json(message.body)
        except ValidationError:
            self._log.warning("malformed hint", subject=message.subject)
            return
        key = pool, hint.worker
        heard = self._heard.get(key)
        if heard is not None and heard >= hint.number:
            return
        self._heard[key] = hint.number
        self._heard.move_to_end(key)
        if len(self._heard) > _MOST_HEARD:
            self._heard.popitem(last=False)
        self.permits.fence_pool(pool, hint.uris if heard == hint.since else ())

    def _on_decision(self, permit: UriPermit, has_change: bool) -> None:
        """Send a caller's streams the change that waited for a decision, or withdraw the changes that wait in them."""
        uri = permit.uri
        if isinstance(uri, OwnChange):
            return
        if not permit.may_read:
            for stream in permit.streams:
                stream.withdraw(uri)
            return
        self._reporter.note_watched((permit.caller.key[0], uri))
        if has_change:
            watchers = dict.fromkeys(permit.streams, permit)
            self._fan_out.begin(permit, watchers, lambda: self._sender(OPERATOR_TOKEN, uri, watchers))

    def _sender(self, pool: str, uri: str, watchers: Mapping[Stream, UriPermit]) -> Tell:
        """Return a function that queues a change of a URI for one stream, where its caller may receive it."""
        notice = resource_updated(uri)
        serving: dict[int, tuple[View, Listed | None]] = {}
        """By the view's identity, as most streams share one. Keeping the view keeps its identity from reuse."""
        last: tuple[View, UriPermit] | None = None
        """The view and the permit of the last stream that was sent the change; streams of one caller share both."""

        def send(stream: Stream) -> None:
            nonlocal last
            view, permit = stream.view, watchers.get(stream)
            if last is None or permit is not last[1] or view is not last[0]:
                entry = serving.get(id(view))
                if entry is None:
                    entry = serving[id(view)] = view, _serving(view, uri, pool)
                if permit is None or not self._let_pass(stream, permit, entry[1]):
                    return
                last = view, permit
            stream.offer(uri, notice)

        return send


def _serving(view: View, uri: str, pool: str = OPERATOR_TOKEN) -> Listed | None:
    """Return the listed resource that serves a URI; None where the view has none, or one of another pool."""
    target = view.find_resource(uri)
    return None if target is None or pool not in (OPERATOR_TOKEN, target.listed.pool) else target.listed


def covers(definition: Definition, principal: Principal) -> bool:
    """Return whether a principal has the scopes that a definition needs."""
    return not definition.scopes or principal.holds(definition.scopes)
