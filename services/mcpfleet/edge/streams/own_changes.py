"""Knows which streams watch which keys of own notifications, and tells them of changes (X46).

A notification with a permit decides who may hear of which keys, by the same leases as a resource's permit (X50, X51).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from anyio.abc import TaskStatus

from mcpfleet.bus.actor import hint_span
from mcpfleet.bus.bus import Bus
from mcpfleet.contracts.catalog import Listed
from mcpfleet.contracts.hints import OwnChange, extension_hint_subject, extension_hints, resource_key
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.interest import Interest
from mcpfleet.edge.streams.stream import FanOut, Stream, Tell
from mcpfleet.edge.streams.uri_permit import UriPermit
from mcpfleet.edge.streams.uri_permits import UriPermits
from mcpfleet.edge.streams.watchers import covers
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.views.view import View
from mcpfleet.wire.filter import OwnKeys
from mcpfleet.wire.notices import key_changed

_HINT: Final = "hint.extension.{endpoint}.{pool}.{key}"


class OwnChanges:
    """The streams of each key. A hint that is lost is not made good: it is no state."""

    def __init__(self, bus: Bus, permits: UriPermits, settings: EdgeSettings, *, tracer: Tracer) -> None:
        self._tracer = tracer
        self._permits = permits
        self._fan_out = FanOut()
        self._by_change: dict[tuple[str, str], dict[Stream, UriPermit | None]] = {}
        """By endpoint and `OwnChange.text`; with the permit of each stream's caller, once the notification has one."""
        self._texts: dict[Stream, tuple[str, ...]] = {}
        """The changes that each stream watches; those of its view when it began."""
        self._interest = Interest(bus, self.on_change, most=settings.watched_keys, hints=extension_hints)
        self.size = 0
        """Bytes of the keys, counted per stream."""
        permits.on_decision(self._on_decision)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Own the subscriptions, until cancelled."""
        await self._interest.run(task_status=task_status)

    # -- watching -----------------------------------------------------------------------------------------------------

    @staticmethod
    def size_of(stream: Stream) -> int:
        """Return the bytes of a stream's own keys."""
        return sum(len(key) for each in stream.honoured.own for key in each.keys)

    def add(self, stream: Stream) -> None:
        """Have a stream watch its keys, until `remove`."""
        if not stream.honoured.own:
            return
        texts = self._texts[stream] = tuple(change.text for change in _changes(stream))
        self.size += self.size_of(stream)
        for text in texts:
            self._by_change.setdefault((stream.endpoint, text), {})[stream] = None

    async def subscribe(self, stream: Stream) -> None:
        """Subscribe to the hints of a stream's keys; raises `BusError`."""
        if stream in self._texts:
            await self._interest.watch(stream.endpoint, self._texts[stream])

    def remove(self, stream: Stream) -> None:
        """Undo `add` and `subscribe`, whether that has returned or was cancelled."""
        texts = self._texts.pop(stream, None)
        if texts is None:
            return
        self.size -= self.size_of(stream)
        self._forget(stream, texts)

    def _forget(self, stream: Stream, texts: tuple[str, ...]) -> None:
        for text in texts:
            watching = self._by_change[stream.endpoint, text]
            if (permit := watching.pop(stream, None)) is not None:
                self._permits.unwatch(stream, permit)
            if not watching:
                del self._by_change[stream.endpoint, text]
        self._interest.unwatch(stream.endpoint, texts)

    # -- permits ------------------------------------------------------------------------------------------------------

    async def remove_unpermitted(self, stream: Stream) -> None:
        """Remove the keys of which a stream's caller may not hear; one without a decision in time is honoured (X50).

        Raises:
            ClientGone: the client has left meanwhile.
        """
        fields: dict[str, str | None] = {}
        """By texts of changes whose notifications have a permit, the fields of the filter."""
        for text in self._texts.get(stream, ()):
            listed = _listed(stream.view, OwnChange.read(text))
            if listed is not None and listed.definition.permit:
                fields[text] = listed.definition.filter
        if pending := self._permits.want([self._permit(stream, text) for text in fields]):
            await stream.while_there(partial(self._permits.wait, pending))
        refused = {text for text in fields if self._permit(stream, text).is_refused}
        if refused:
            self._leave_out(stream, refused, {(fields[text], OwnChange.read(text).key) for text in refused})

    def _leave_out(self, stream: Stream, texts: set[str], keys: set[tuple[str | None, str]]) -> None:
        """Take keys out of what a stream watches and honours."""
        self.size -= self.size_of(stream)
        self._forget(stream, tuple(texts))
        self._texts[stream] = tuple(text for text in self._texts[stream] if text not in texts)
        own = [
            OwnKeys(each.field, tuple(key for key in each.keys if (each.field, key) not in keys))
            for each in stream.honoured.own
        ]
        stream.honoured = replace(stream.honoured, own=tuple(each for each in own if each.keys))
        self.size += self.size_of(stream)

    def _permit(self, stream: Stream, text: str) -> UriPermit:
        """Return the permit of a stream's caller, as it is now."""
        watching = self._by_change[stream.endpoint, text]
        permit = watching.get(stream)
        if permit is None or permit.principal != stream.lease.principal:
            [newer] = self._permits.watch(stream, (OwnChange.read(text),))
            if permit is not None:
                self._permits.unwatch(stream, permit)
            permit = watching[stream] = newer
        return permit

    def change_principal(self, stream: Stream) -> None:
        """Watch a stream's keys as the principal of its newest lease, which may have other scopes."""
        for text in self._texts.get(stream, ()):
            if self._by_change[stream.endpoint, text].get(stream) is not None:
                self._permit(stream, text)

    def let_pass(self, stream: Stream, text: str) -> bool:
        """Let a change that waited pass if its stream watches it and its caller still may; return whether it does."""
        if text not in self._texts.get(stream, ()):
            return False
        return self._let_pass(stream, text, _listed(stream.view, OwnChange.read(text)))

    def _let_pass(self, stream: Stream, text: str, listed: Listed | None) -> bool:
        if listed is None or not covers(listed.definition, stream.lease.principal):
            return False
        if not listed.definition.permit:
            return True
        if stream not in self._by_change.get((stream.endpoint, text), ()):  # it has left
            return False
        return self._permits.let_pass(self._permit(stream, text), listed.digest)

    def waits(self, stream: Stream, text: str) -> bool:
        """Return whether a change waits for a decision on its permit."""
        permit = self._by_change.get((stream.endpoint, text), {}).get(stream)
        return permit is not None and permit.has_change

    # -- changes ------------------------------------------------------------------------------------------------------

    def on_change(self, endpoint: str, pool: str, text: str, cause: TraceContext | None = None) -> None:
        """Tell the streams that watch a key, where the hint's pool declares the notification to their callers."""
        watching = self._by_change.get((endpoint, text))
        if watching is None:
            return
        with hint_span(self._tracer, _HINT, lambda: extension_hint_subject(endpoint, pool, resource_key(text)), cause):
            self._fan_out.begin((endpoint, pool, text), watching, lambda: self._teller(pool, text))

    def _on_decision(self, permit: UriPermit, has_change: bool) -> None:
        """Send a caller's streams the change that waited for a decision, or withdraw the changes that wait in them."""
        if not isinstance(permit.uri, OwnChange):
            return
        text = permit.name
        if not permit.may_read:
            for stream in permit.streams:
                stream.withdraw(text)
        elif has_change:
            self._fan_out.begin(permit, list(permit.streams), lambda: self._teller(None, text))

    def _teller(self, pool: str | None, text: str) -> Tell:
        """Return a function that queues a change for one stream, where its caller may hear of it."""
        change = OwnChange.read(text)
        notice = key_changed(change.notification, change.key)
        known: dict[int, tuple[View, Listed | None]] = {}
        """By the view's identity, as most streams share one. Keeping the view keeps its identity from reuse."""

        def tell(stream: Stream) -> None:
            entry = known.get(id(stream.view))
            if entry is None:
                entry = known[id(stream.view)] = stream.view, _listed(stream.view, change, pool)
            if self._let_pass(stream, text, entry[1]):
                stream.offer(text, notice)

        return tell


def _listed(view: View, change: OwnChange, pool: str | None = None) -> Listed | None:
    """Return a notification as a caller sees it; None where it does not, or where another pool declares it."""
    target = view.find("notification", change.notification)
    if target is None or pool not in (None, target.listed.pool):
        return None
    return target.listed


def _changes(stream: Stream) -> Iterator[OwnChange]:
    for each in stream.honoured.own:
        target = stream.view.filters.get(each.field)
        if target is not None:
            yield from (OwnChange(target.listed.definition.name, key) for key in each.keys)
