"""Subscribes on the bus to the hints of exactly those resources, or own keys, that this edge's streams watch."""

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
"""At this part of the bound, each key has its own subscription again."""

OnHint = Callable[[str, str, str, TraceContext | None], None]
"""Takes an endpoint, the pool that sent the hint, the URI or key, and the trace of the change, where it is recorded."""


@dataclass(slots=True, eq=False)
class _Endpoint:
    watchers: Counter[str] = field(default_factory=Counter)
    """How many streams watch each key."""
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    """By the keys that have their own."""
    all: Subscription | None = None
    """The subscription to all keys, where there are too many for their own."""


class Interest:
    """Subscribes to keys while streams watch them; above a bound of them, to all of an endpoint's keys."""

    def __init__(self, bus: Bus, on_hint: OnHint, *, most: int, hints: Callable[..., str] = resource_hints) -> None:
        """Begin without subscriptions.

        Args:
            bus: the edge's.
            on_hint: takes each hint; it does not wait.
            most: keys of an endpoint that have their own subscriptions, at most.
            hints: returns the pattern of one key's hints at an endpoint, or of all keys'.
        """
        self._bus = bus
        self._forward = on_hint
        self._most = most
        self._hints = hints
        self._endpoints: dict[str, _Endpoint] = {}
        self._tasks = TaskOwner()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the tasks that leave subscriptions, until cancelled."""
        await self._tasks.run(task_status=task_status)

    async def watch(self, name: str, uris: Iterable[str]) -> None:
        """Subscribe to the hints of these URIs until `unwatch`; after a flush of the bus no hint is missed."""
        endpoint = self._endpoints.setdefault(name, _Endpoint())
        keys = [resource_key(uri) for uri in uris]
        for key in keys:
            endpoint.watchers[key] += 1
        if endpoint.all is None and len(endpoint.watchers) > self._most:
            await self._subscribe_all(name, endpoint)
        elif endpoint.all is None:
            for key in keys:
                await self._subscribe_key(name, endpoint, key)

    def unwatch(self, name: str, uris: Collection[str]) -> None:
        """Undo `watch`, whether it has returned or was cancelled."""
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            return
        for key in map(resource_key, uris):
            endpoint.watchers[key] -= 1
            if endpoint.watchers[key] <= 0:
                del endpoint.watchers[key]
                if (subscription := endpoint.subscriptions.pop(key, None)) is not None:
                    self._leave(subscription)
        if endpoint.all is not None and len(endpoint.watchers) <= self._most * _BACK_AT and self._tasks.is_running:
            everything, endpoint.all = endpoint.all, None
            self._tasks.start(self._subscribe_each, name, endpoint, everything)

    async def _subscribe_all(self, name: str, endpoint: _Endpoint) -> None:
        everything = await self._bus.subscribe(self._hints(name), self._on_hint)
        if endpoint.all is not None:  # another stream has subscribed meanwhile
            self._leave(everything)
            return
        endpoint.all = everything
        apart, endpoint.subscriptions = endpoint.subscriptions, {}
        for subscription in apart.values():
            self._leave(subscription)

    async def _subscribe_each(self, name: str, endpoint: _Endpoint, everything: Subscription) -> None:
        """Subscribe to each key again, and only then leave the subscription to all."""
        for key in list(endpoint.watchers):
            await self._subscribe_key(name, endpoint, key)
        self._leave(everything)

    async def _subscribe_key(self, name: str, endpoint: _Endpoint, key: str) -> None:
        if key in endpoint.subscriptions or endpoint.all is not None or not endpoint.watchers[key]:
            return
        subscription = await self._bus.subscribe(self._hints(name, key), self._on_hint)
        if (
            key in endpoint.subscriptions or not endpoint.watchers[key]
        ):  # another stream has subscribed, or all have left, meanwhile
            self._leave(subscription)
        else:
            endpoint.subscriptions[key] = subscription

    def _leave(self, subscription: Subscription) -> None:
        self._tasks.start(self._bus.leave, subscription)

    def _on_hint(self, message: Incoming) -> None:
        """Pass a hint on. For a moment a key may have two subscriptions, and its hint come twice, as hints may."""
        _, _, endpoint, pool, _ = message.subject.split(".")
        sent = header.read(message.header)
        self._forward(endpoint, pool, message.body.decode(), sent.trace if sent is not None else None)
