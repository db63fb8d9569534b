"""All open streams of an edge, and the ways by which changes reach them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.hints import LISTS, list_hints
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.own_changes import OwnChanges
from mcpfleet.edge.streams.quota import Quota
from mcpfleet.edge.streams.recovery import Recovery
from mcpfleet.edge.streams.renewals import Renewals
from mcpfleet.edge.streams.stream import Exit, FanOut, Stream
from mcpfleet.edge.streams.task_updates import KEY, TaskUpdates
from mcpfleet.edge.streams.watchers import Watchers, covers
from mcpfleet.process.host import connections_within
from mcpfleet.telemetry.instruments import StreamInstruments
from mcpfleet.views.view import View
from mcpfleet.wire.errors import Rejection, no_capacity
from mcpfleet.wire.filter import Filter
from mcpfleet.wire.notices import LIST_CHANGED, Notice, resource_updated

_RETRY_AFTER: Final = 5
"""Seconds after which a refused client may ask for a stream again."""
_FLUSH_TIMEOUT: Final = 2.0
"""Seconds for NATS to confirm the subscriptions of a stream."""
_PAUSE: Final = 0.02
"""Seconds between the ends of two streams of a draining edge, where there is time for it."""
_SHARE: Final = 0.75
"""The part of the drain time in which streams are ended; the clients of the last ones need the rest."""

_OF_CONNECTIONS: Final = 2
"""Streams over HTTP/1.1 may have one in this many connections, so that calls find others."""


class StreamParts(NamedTuple):
    """The parts that all streams of an edge share, and that run as long as the hub does."""

    watchers: Watchers
    tasks: TaskUpdates
    quota: Quota
    own: OwnChanges


class Hub:
    """Knows the open streams of each endpoint."""

    def __init__(
        self,
        bus: Bus,
        snapshots: Snapshots,
        parts: StreamParts,
        settings: EdgeSettings,
        *,
        instruments: StreamInstruments,
        log: FilteringBoundLogger,
    ) -> None:
        self._bus = bus
        self._snapshots = snapshots
        self._watchers, self._tasks, self._quota, self._own = parts
        self._endpoints = tuple(settings.endpoints)
        self._most = settings.max_streams
        self._most_connections = max(1, connections_within(settings.max_connections) // _OF_CONNECTIONS)
        self._instruments = instruments
        self._renewals = Renewals(
            longest=settings.permission_lasts, refresh=self._refresh, renewals=instruments.renewals, log=log
        )
        self._recovery = Recovery(
            bus, self.streams, self.catch_up, rate=settings.catch_up_rate, lasts=settings.catch_up_lasts
        )
        self._fan_out = FanOut()
        self._count = 0
        self._connections = 0
        """The streams that occupy a connection each."""
        self._by_endpoint: dict[str, set[Stream]] = {}
        self.is_draining = False
        """A stream that begins now is acknowledged and ended at once (S17)."""
        snapshots.on_change(self.on_catalog)
        instruments.open.observe(lambda: self._count)

    def __len__(self) -> int:
        return self._count

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Do the background work of all streams, until cancelled."""
        for endpoint in self._endpoints:
            await self._bus.subscribe(list_hints(endpoint), self._on_list_hint)
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._watchers.run)
            await tasks.start(self._tasks.run)
            await tasks.start(self._own.run)
            tasks.start_soon(self._quota.run)
            tasks.start_soon(self._renewals.run)
            tasks.start_soon(self._recovery.run)
            task_status.started()

    # -- a stream's life ----------------------------------------------------------------------------------------------

    def refusal(self, why: str) -> Rejection:
        """Count a refused stream, and return the rejection."""
        self._instruments.refused.add(1, why)
        return no_capacity(_RETRY_AFTER)

    def join(self, stream: Stream) -> None:
        """Take a place for a stream, and queue its changes, until `leave` (S10, N11).

        Raises:
            Rejection: 503 where no place is left (MCPFLEET_MAX_STREAMS; half of MCPFLEET_MAX_CONNECTIONS), or no memory
                for what the stream watches (MCPFLEET_WATCHED_ROOM, MCPFLEET_WATCHED_TASKS).
        """
        beside = self._own.size + self._own.size_of(stream)
        if self._is_full(stream) or not self._watchers.fits(stream.honoured.uris, beside):
            raise self.refusal("edge" if self._is_full(stream) else "room")
        if stream.honoured.task_ids and not self._tasks.join(stream):
            raise self.refusal("tasks")
        self._count += 1
        self._connections += stream.has_connection
        self._by_endpoint.setdefault(stream.endpoint, set()).add(stream)
        self._watchers.add(stream, stream.honoured.uris)
        stream.on_unwritten = partial(self._offer_again, stream)
        self._own.add(stream)
        self._show(stream)  # the client's view may have changed since its request

    def _is_full(self, stream: Stream) -> bool:
        """Return whether there are too many streams, or too many that leave no connection for calls (N29)."""
        if self._count >= self._most:
            return True
        return stream.has_connection and self._connections >= self._most_connections

    async def change_uris(self, stream: Stream, uris: tuple[str, ...]) -> None:
        """Have a stream that has joined watch these URIs instead of its former ones, without missing a hint.

        Where there is no memory for them, the stream ends (MCPFLEET_WATCHED_ROOM).

        Raises:
            BusError: some subscriptions are not confirmed.
        """
        before = stream.honoured.uris
        more, less = [uri for uri in uris if uri not in before], [uri for uri in before if uri not in uris]
        if self._watchers.fits(more, self._own.size):
            stream.honoured = replace(stream.honoured, uris=uris)
            self._watchers.remove(stream, less)
            self._watchers.add(stream, more)
            await self._watchers.subscribe(stream, more)
            self._watchers.want(stream, more)
        else:
            stream.end(Exit.NO_ROOM)
        await self._bus.flush(timeout=_FLUSH_TIMEOUT)

    async def subscribe(self, stream: Stream, capabilities: dict[str, Any]) -> None:
        """Subscribe to the hints of a stream that has joined, and miss none from then on.

        Args:
            stream: has no subscriptions yet.
            capabilities: its client's, which decide what it may receive of tasks.

        Raises:
            BusError: some subscriptions are not confirmed.
        """
        await self._watchers.subscribe(stream, stream.honoured.uris)
        await self._own.subscribe(stream)
        if stream.honoured.task_ids:
            await self._tasks.watch(stream, capabilities)
        await self._bus.flush(timeout=_FLUSH_TIMEOUT)

    async def accept(self, stream: Stream) -> None:
        """Remove what a stream's caller may not see from its filter, and renew its lease from now on.

        Raises:
            Rejection: 504 where its tasks cannot be read.
            ClientGone: the client has left meanwhile.
        """
        if stream.honoured.task_ids:
            await self._tasks.accept(stream)
        if stream.honoured.uris:
            await self._watchers.remove_unreadable(stream)
        if stream.honoured.own:
            await self._own.remove_unpermitted(stream)
        if not stream.honoured and stream.kind == "listen":  # a session may subscribe later
            stream.end(Exit.NOTHING_HONOURED)
        self._renewals.add(stream)

    def leave(self, stream: Stream) -> None:
        """Undo `join` and all that followed."""
        self._renewals.remove(stream)
        self._count -= 1
        self._connections -= stream.has_connection
        self._by_endpoint[stream.endpoint].discard(stream)
        self._watchers.remove(stream, stream.honoured.uris)
        self._own.remove(stream)
        self._tasks.unwatch(stream)

    def streams(self) -> list[Stream]:
        """Return all streams that have joined."""
        return [stream for streams in self._by_endpoint.values() for stream in streams]

    # -- changes ------------------------------------------------------------------------------------------------------

    def _on_list_hint(self, message: Incoming) -> None:
        """Tell the streams that listen to lists, where the hint's pool has a lister for their callers."""
        _, _, endpoint, pool = message.subject.split(".")
        streams = self._by_endpoint.get(endpoint, ())
        self._fan_out.begin((endpoint, pool, LISTS), streams, lambda: partial(self._offer_lists, pool))

    def _offer_lists(self, pool: str | None, stream: Stream) -> None:
        if "resources" in stream.honoured.lists and lists_for(stream, pool):
            stream.offer("resources", LIST_CHANGED["resources"])

    def on_catalog(self, endpoint: str) -> None:
        """Give each stream of an endpoint its caller's newest view (S15)."""
        self._fan_out.begin(endpoint, self._by_endpoint.get(endpoint, ()), lambda: self._show)
        self._watchers.catalog_changed(endpoint)

    def _show(self, stream: Stream) -> None:
        view = self._snapshots.view(
            stream.endpoint,
            stream.lease.principal,
            stream.revision,
            has_apps=stream.has_apps,
            preference=stream.preference,
        )
        if view is None or view is stream.view:
            return
        former = stream.view
        stream.see(view)
        if view.has_files or former.has_files:
            self._tell_files(stream, former)

    def _tell_files(self, stream: Stream, former: View) -> None:
        """Tell a stream of the files that it watches and that have changed since a former view."""
        for uri in stream.honoured.uris:
            state = stream.view.file_state(uri)
            if state is not None and state != former.file_state(uri) and self._watchers.let_pass(stream, uri):
                stream.offer(uri, resource_updated(uri))

    def revoke(self, matches: Callable[[Principal], bool]) -> None:
        """Fence the streams whose rights may have ended, and renew their leases at once (S3).

        A change of policy concerns all streams that have a lease. The fence is for all in one turn (X52); then their
        leases are renewed some at once, in common questions.

        Args:
            matches: returns whether the rights of a principal may have ended.
        """
        streams = [each for each in self.streams() if each.lease.expires < math.inf and matches(each.lease.principal)]
        for stream in streams:
            stream.fence()
            self._instruments.fences.add(1)
        self._watchers.permits.take_back(matches)
        for stream in streams:
            self._renewals.renew_now(stream)

    def end_keys(self, is_over: Callable[[str | None, float], bool]) -> None:
        """Fence the streams whose credentials rest on an ended key, and renew their leases at once (S3).

        Args:
            is_over: returns whether an answer by this key, asked for at this time, has ended.
        """
        for stream in self.streams():
            if is_over(stream.lease.key, stream.lease.asked_at):
                stream.fence()
                self._instruments.fences.add(1)
                self._renewals.renew_now(stream)

    def _refresh(self, stream: Stream) -> None:
        """Let a stream go on after a renewal: what waits is sent where its caller still may receive it.

        A task is read again, with the rights that its caller has now.
        """
        self._show(stream)
        self._watchers.change_principal(stream)
        self._own.change_principal(stream)
        self._narrow(stream)
        self._offer_again(stream, stream.lift())

    def _narrow(self, stream: Stream) -> None:
        """Take out of a stream's filter what the operator's policy allows no more; the stream itself goes on (X51)."""
        allowed, honoured = stream.allowed, stream.honoured
        if allowed == honoured:
            return
        if honoured.only_own(dict(allowed.own)) != honoured.own:  # its client listens again, for what is left
            stream.end(Exit.LEASE_ENDED)
            return
        gone = [uri for uri in honoured.uris if uri not in allowed.uris]
        self._watchers.remove(stream, gone)
        stream.give_up([*(honoured.lists - allowed.lists), *gone])
        tasks = tuple(task for task in honoured.task_ids if task in allowed.task_ids)
        for task in set(honoured.task_ids) - set(tasks):
            self._tasks.drop(stream, task)
        uris = tuple(uri for uri in honoured.uris if uri in allowed.uris)
        stream.honoured = Filter(honoured.lists & allowed.lists, uris, tasks, honoured.own)

    def _offer_again(self, stream: Stream, waited: Mapping[str, Notice]) -> None:
        """Queue changes that waited while a stream's rights were uncertain, where its caller may receive them."""
        for key, notice in waited.items():
            if key.startswith(KEY):
                self._tasks.send_again(stream, key.removeprefix(KEY))
            elif key in LIST_CHANGED or self._own.let_pass(stream, key) or self._watchers.let_pass(stream, key):
                stream.offer(key, notice)
            elif not self._watchers.waits(stream, key) and not self._own.waits(stream, key):
                stream.withdraw(key)

    def catch_up(self, stream: Stream, uri: str) -> None:
        """Queue a possible change of a URI, or of the result of listers, where the stream's caller may receive it."""
        if uri == LISTS:
            self._offer_lists(None, stream)
        elif self._watchers.let_pass(stream, uri):
            stream.offer(uri, resource_updated(uri))

    def waiting(self, stream: Stream) -> list[str]:
        """Return the URIs of a stream of which a change waits for a decision."""
        return [uri for uri in stream.honoured.uris if self._watchers.waits(stream, uri)]

    # -- draining -----------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Acknowledge and end each stream that begins from now on."""
        self.is_draining = True

    async def end_all(self, within: float) -> None:
        """End every stream, in random order and with pauses, so that their clients reach other edges one by one.

        Args:
            within: seconds that the edge has for all that it still does.
        """
        streams = self.streams()
        random.shuffle(streams)
        pause = min(_PAUSE, _SHARE * within / max(1, len(streams)))
        for stream in streams:
            stream.end(Exit.SHUTDOWN)
            await anyio.sleep(pause)

    def end_now(self) -> None:
        """End every stream at once."""
        for stream in self.streams():
            stream.end(Exit.SHUTDOWN)


def lists_for(stream: Stream, pool: str | None) -> bool:
    """Return whether a pool, or any pool, has a lister for a stream's caller; its worker decides what is listed."""
    return any(
        pool in (None, target.listed.pool) and covers(target.listed.definition, stream.lease.principal)
        for target in stream.view.targets["lister"].values()
    )
