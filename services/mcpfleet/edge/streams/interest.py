"""What this edge hears on the bus: the hints of just those resources that its streams watch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import TaskStatus

from mcpfleet.bus import header
from mcpfleet.bus.bus import Bus, Subscription
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.hints import resource_hints, resource_key
from mcpfleet.process.task_owner import TaskOwner
from mcpfleet.telemetry.trace import TraceContext

_BACK_AT: Final = 0.75
"""Of the bound, the part from which keys are heard by themselves again."""

Hear = Callable[[str, str, str, TraceContext | None], None]
"""Takes an endpoint, the pool that spoke, the URI, and the work that changed what is read there, where it is known."""


@dataclass(slots=True, eq=False)
class _Endpoint:
    watchers: Counter[str] = field(default_factory=Counter)
    """How many streams watch each key."""
    heard: dict[str, Subscription] = field(default_factory=dict)
    """The keys that are heard by themselves."""
    all: Subscription | None = None
    """All keys, where there are too many of them."""


class Interest:
    """Hears keys for as long as somebody watches them; above a bound of them, all of an endpoint's."""

    def __init__(self, bus: Bus, hear: Hear, *, most: int) -> None:
        """Hear nothing yet.

        Args:
            bus: the edge's.
            hear: is told of each hint; it does not wait.
            most: keys of an endpoint that are heard by themselves.
        """
        self._bus = bus
        self._hear = hear
        self._most = most
        self._endpoints: dict[str, _Endpoint] = {}
        self._tasks = TaskOwner()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the leaving of what nobody watches any more, until cancelled."""
        await self._tasks.run(task_status=task_status)

    async def watch(self, name: str, uris: Iterable[str]) -> None:
        """Hear the hints of these URIs until `unwatch`; what is said of them after a flush of the bus is heard."""
        endpoint = self._endpoints.setdefault(name, _Endpoint())
        keys = [resource_key(uri) for uri in uris]
        for key in keys:
            endpoint.watchers[key] += 1
        if endpoint.all is None and len(endpoint.watchers) > self._most:
            await self._hear_all(name, endpoint)
        elif endpoint.all is None:
            for key in keys:
                await self._hear_key(name, endpoint, key)

    def unwatch(self, name: str, uris: Collection[str]) -> None:
        """Undo `watch`, whether or not that came to its end."""
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            return
        for key in map(resource_key, uris):
            endpoint.watchers[key] -= 1
            if endpoint.watchers[key] <= 0:
                del endpoint.watchers[key]
                if (subscription := endpoint.heard.pop(key, None)) is not None:
                    self._leave(subscription)
        if endpoint.all is not None and len(endpoint.watchers) <= self._most * _BACK_AT and self._tasks.is_running:
            everything, endpoint.all = endpoint.all, None
            self._tasks.start(self._hear_apart, name, endpoint, everything)

    async def _hear_all(self, name: str, endpoint: _Endpoint) -> None:
        everything = await self._bus.subscribe(resource_hints(name), self._on_hint)
        if endpoint.all is not None:  # in the meantime
            self._leave(everything)
            return
        endpoint.all = everything
        apart, endpoint.heard = endpoint.heard, {}
        for subscription in apart.values():
            self._leave(subscription)

    async def _hear_apart(self, name: str, endpoint: _Endpoint, everything: Subscription) -> None:
        """Hear each key by itself again, and only then leave what hears them all."""
        for key in list(endpoint.watchers):
            await self._hear_key(name, endpoint, key)
        self._leave(everything)

    async def _hear_key(self, name: str, endpoint: _Endpoint, key: str) -> None:
        if key in endpoint.heard or endpoint.all is not None or not endpoint.watchers[key]:
            return
        subscription = await self._bus.subscribe(resource_hints(name, key), self._on_hint)
        if key in endpoint.heard or not endpoint.watchers[key]:  # in the meantime
            self._leave(subscription)
        else:
            endpoint.heard[key] = subscription

    def _leave(self, subscription: Subscription) -> None:
        self._tasks.start(self._bus.leave, subscription)

    def _on_hint(self, message: Incoming) -> None:
        """Pass a hint on. Where a key is heard twice for a moment its hint may come twice, which a hint may."""
        _, _, endpoint, pool, _ = message.subject.split(".")
        sent = header.read(message.header)
        self._hear(endpoint, pool, message.body.decode(), sent.trace if sent is not None else None)
