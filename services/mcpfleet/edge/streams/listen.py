"""Answers `subscriptions/listen`: from the filter to the stream's end."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from mcpfleet.bus.errors import BusError
from mcpfleet.edge.identity.limits import Limits
from mcpfleet.edge.protocol.exchange import Exchange, check_declared
from mcpfleet.edge.protocol.schema import LONGEST_STREAM_ID
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.hub import Hub
from mcpfleet.edge.streams.lease import Judged, StreamLease, StreamLeases
from mcpfleet.edge.streams.quota import Quota
from mcpfleet.edge.streams.stream import Exit, Stream, StreamBounds, StreamEnd
from mcpfleet.edge.tasks.read import declares, takes_tasks
from mcpfleet.edge.transport.http_exchange import AnswerCut, ClientStalled
from mcpfleet.edge.transport.request_head import Credential
from mcpfleet.process.events import StreamBegan, StreamEnded
from mcpfleet.process.observers import Observers
from mcpfleet.telemetry.instruments import StreamInstruments
from mcpfleet.wire.errors import bad_params, missing_capabilities
from mcpfleet.wire.filter import read_filter
from mcpfleet.wire.notices import subscription_id
from mcpfleet.wire.protocol import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, TASKS

_JITTER: Final = 0.1
"""A stream may end earlier by up to this part of its longest life, so that streams of one moment spread out."""


class ListenStreams:
    """Opens streams, in the order that loses no change and sends no client too much.

    First the stream takes its place, subscribes to hints, and queues the changes. Then the quota and authorization are
    asked. The acknowledgment is sent next, and the queued changes follow.
    """

    def __init__(
        self,
        hub: Hub,
        quota: Quota,
        leases: StreamLeases,
        limits: Limits,
        *,
        settings: EdgeSettings,
        instruments: StreamInstruments,
        observers: Observers,
    ) -> None:
        self._hub = hub
        self._quota = quota
        self._leases = leases
        self._limits = limits
        self._settings = settings
        self._instruments = instruments
        self._observers = observers
        self._on_end: list[Callable[[StreamEnd], None]] = []

    def on_end(self, hear: Callable[[StreamEnd], None]) -> None:
        """Have somebody hear how each stream ends."""
        self._on_end.append(hear)

    async def answer(self, exchange: Exchange) -> None:
        """Answer with a stream (S20).

        Raises:
            Rejection: -32602 where the filter names too much, 403 where a scope is missing. 429 where the caller asks
                too often, 503 where the edge has no capacity. Nothing was sent yet.
            ClientStalled: the client does not read.
            ClientGone: it has left before the stream began.
        """
        meta = exchange.message.meta
        requested = read_filter(exchange.params["notifications"], self._settings.stream_keys, exchange.view.filters)
        check_declared(meta.get(CLIENT_INFO_META_KEY), meta[CLIENT_CAPABILITIES_META_KEY])
        exchange.forget_body()
        if len(str(exchange.id)) > LONGEST_STREAM_ID:
            raise bad_params(f"a stream's id has at most {LONGEST_STREAM_ID} characters")
        honoured = requested.supported(exchange.view.capabilities, tasks=takes_tasks(exchange))
        if exchange.view.has_revisions:
            uris = tuple(uri for uri in honoured.uris if not exchange.view.is_of_other_revisions(uri))
            honoured = replace(honoured, uris=uris)
        if honoured.task_ids and not declares(exchange):
            raise missing_capabilities((TASKS,))  # before any look-up (D2)
        self._leases.check_scopes(exchange, honoured)
        await self._limits.take_request(exchange.endpoint, exchange.caller)
        judged = None
        if honoured and not self._hub.is_draining:
            judged = await self._leases.judge(exchange, "listen", honoured)
            honoured = honoured if judged is None else judged.allowed
        stream = Stream(
            exchange,
            subscription_id(exchange.id),
            lease=StreamLease(exchange.caller),
            honoured=honoured,
            bounds=self.bounds(),
        )
        exchange.forget()  # a stream lasts for hours, and needs neither the message nor this view any more
        if self._hub.is_draining or not honoured:
            stream.end(Exit.SHUTDOWN if self._hub.is_draining else Exit.NOTHING_HONOURED)
            await self._run(stream)
            return
        capabilities = meta[CLIENT_CAPABILITIES_META_KEY]
        del meta  # this frame lasts as long, and `_meta` may have megabytes
        await self.serve(stream, exchange.credential, capabilities, judged=judged)

    async def serve(
        self,
        stream: Stream,
        credential: Credential | None,
        capabilities: dict[str, Any] | None = None,
        before: Callable[[], Awaitable[None]] | None = None,
        after: Callable[[], Awaitable[None]] | None = None,
        *,
        judged: Judged | None = None,
    ) -> None:
        """Give a stream its place, its share of the quota and its lease, and run it to its end.

        Args:
            stream: has sent nothing yet.
            credential: its client's, which renews the lease.
            capabilities: its client's, which decide what it may receive of tasks.
            before: is called once the stream has all that, and before it sends anything.
            after: is called once the stream has ended, while it still hears of changes.
            judged: what the operator's policy has said of it; None where it judges no such streams.

        Raises:
            Rejection: 503 where the edge has no capacity, as `Admission.admit`, and as `before`; nothing was sent yet.
            ClientStalled: the client does not read.
            ClientGone: it has left before the stream began.
        """
        stream.on_written = self._instruments.told.add
        # Context managers would keep their frames for each of thousands of streams.
        self._hub.join(stream)
        try:
            if stream.honoured.uris or stream.honoured.task_ids or stream.honoured.own:
                try:
                    await self._hub.subscribe(stream, capabilities or {})
                except BusError:
                    raise self._hub.refusal("bus") from None
            await self._serve_within_quota(stream, credential, before, judged)
        finally:
            if after is not None:
                await after()
            self._hub.leave(stream)

    def bounds(self) -> StreamBounds:
        """Return the bounds of a stream that begins now."""
        settings = self._settings
        return StreamBounds(
            settings.keepalive,
            settings.stream_lasts * random.uniform(1 - _JITTER, 1),  # noqa: S311  # no secret
            settings.stream_pending,
        )

    async def _serve_within_quota(
        self,
        stream: Stream,
        credential: Credential | None,
        before: Callable[[], Awaitable[None]] | None,
        judged: Judged | None,
    ) -> None:
        """Run a stream as one of its partition's."""
        principal = stream.lease.principal
        partition = principal.partition
        try:
            is_granted = await self._quota.open(stream.endpoint, partition)
        except BusError:
            raise self._hub.refusal("subscriptions") from None
        if not is_granted:
            raise self._hub.refusal("partition")
        try:
            stream.lease = await self._leases.grant(stream.endpoint, principal, credential, judged)
            await self._hub.accept(stream)
            if before is not None:
                await before()
            await self._run(stream)
        finally:
            self._quota.close(stream.endpoint, partition)

    async def _run(self, stream: Stream) -> None:
        why, began = "failed", time.monotonic()
        if self._observers.is_on:
            self._observers.tell(StreamBegan, stream.endpoint, stream.kind)
        try:
            why = await stream.run()
        except ClientStalled as error:
            why = Exit.WRITE_FAILED
            if isinstance(error, AnswerCut):
                self._instruments.cuts.add(1)
            raise
        finally:
            seconds = time.monotonic() - began
            self._instruments.ended.add(1, why)
            self._instruments.duration.record(seconds, stream.kind, why)
            if self._observers.is_on:
                self._observers.tell(StreamEnded, stream.endpoint, stream.kind, str(why), seconds)
            if self._on_end:
                end = stream.ended(why)
                for hear in self._on_end:
                    hear(end)
