"""Knows which streams watch which keys of own notifications, and tells them of changes (X46)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anyio.abc import TaskStatus

from mcpfleet.bus.actor import hint_span
from mcpfleet.bus.bus import Bus
from mcpfleet.contracts.hints import OwnChange, extension_hint_subject, extension_hints, resource_key
from mcpfleet.contracts.manifest import Definition
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.interest import Interest
from mcpfleet.edge.streams.stream import FanOut, Stream, Tell
from mcpfleet.edge.streams.watchers import covers
from mcpfleet.telemetry.spans import Tracer
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.views.view import View
from mcpfleet.wire.notices import key_changed

_HINT: Final = "hint.extension.{endpoint}.{pool}.{key}"


class OwnChanges:
    """The streams of each key. A hint that is lost is not made good: it is no state."""

    def __init__(self, bus: Bus, settings: EdgeSettings, *, tracer: Tracer) -> None:
        self._tracer = tracer
        self._fan_out = FanOut()
        self._by_change: dict[tuple[str, str], dict[Stream, None]] = {}
        """By endpoint and `OwnChange.text`."""
        self._texts: dict[Stream, tuple[str, ...]] = {}
        """The changes that each stream watches; those of its view when it began."""
        self._interest = Interest(bus, self.on_change, most=settings.watched_keys, hints=extension_hints)
        self.size = 0
        """Bytes of the keys, counted per stream."""

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
        for text in texts:
            watching = self._by_change[stream.endpoint, text]
            watching.pop(stream, None)
            if not watching:
                del self._by_change[stream.endpoint, text]
        self._interest.unwatch(stream.endpoint, texts)

    def may_send(self, stream: Stream, text: str) -> bool:
        """Return whether a change that waited may be sent now: its stream watches it, and its caller still may."""
        if text not in self._texts.get(stream, ()):
            return False
        definition = _definition(stream.view, OwnChange.read(text), None)
        return definition is not None and covers(definition, stream.lease.principal)

    # -- changes ------------------------------------------------------------------------------------------------------

    def on_change(self, endpoint: str, pool: str, text: str, cause: TraceContext | None = None) -> None:
        """Tell the streams that watch a key, where the hint's pool declares the notification to their callers."""
        watching = self._by_change.get((endpoint, text))
        if watching is None:
            return
        with hint_span(self._tracer, _HINT, lambda: extension_hint_subject(endpoint, pool, resource_key(text)), cause):
            self._fan_out.begin((endpoint, pool, text), watching, lambda: _teller(pool, text))


def _teller(pool: str, text: str) -> Tell:
    """Return a function that queues a change for one stream, where its caller may hear of it."""
    change = OwnChange.read(text)
    notice = key_changed(change.notification, change.key)
    known: dict[int, tuple[View, Definition | None]] = {}
    """By the view's identity, as most streams share one. Keeping the view keeps its identity from reuse."""

    def tell(stream: Stream) -> None:
        entry = known.get(id(stream.view))
        if entry is None:
            entry = known[id(stream.view)] = stream.view, _definition(stream.view, change, pool)
        if entry[1] is not None and covers(entry[1], stream.lease.principal):
            stream.offer(text, notice)

    return tell


def _definition(view: View, change: OwnChange, pool: str | None) -> Definition | None:
    """Return a notification as a caller sees it; None where it does not, or where another pool declares it."""
    target = view.find("notification", change.notification)
    if target is None or pool not in (None, target.listed.pool):
        return None
    return target.listed.definition


def _changes(stream: Stream) -> Iterator[OwnChange]:
    for each in stream.honoured.own:
        target = stream.view.filters.get(each.field)
        if target is not None:
            yield from (OwnChange(target.listed.definition.name, key) for key in each.keys)
