"""Answers `subscriptions/listen`: from the filter to the stream's one end."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.edge.identity.limits import Limits
from mcpfleet.edge.protocol.exchange import Exchange, check_declared
from mcpfleet.edge.protocol.schema import LONGEST_STREAM_ID
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.streams.hub import Hub
from mcpfleet.edge.streams.lease import Permits, Unending
from mcpfleet.edge.streams.quota import Quota
from mcpfleet.edge.streams.stream import Exit, Stream, Terms
from mcpfleet.edge.tasks.read import declares, takes_tasks
from mcpfleet.edge.transport.http_exchange import ClientStalled
from mcpfleet.edge.transport.request_head import Credential
from mcpfleet.telemetry.instruments import StreamInstruments
from mcpfleet.wire.capabilities import TASKS
from mcpfleet.wire.errors import bad_params, missing_capabilities
from mcpfleet.wire.filter import Filter, read_filter
from mcpfleet.wire.notices import subscription_id
from mcpfleet.wire.protocol import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY

_FLUSHED_WITHIN: Final = 2.0
_JITTER: Final = 0.1
"""The part of its longest life by which a stream may end sooner, so that those that began together do not end so."""


class Listens:
    """Opens streams, in the order that loses no change and tells nobody too much.

    A place is taken, changes are heard and held, the quota and the permission are asked; the acknowledgment comes
    first, and then what was held.
    """

    def __init__(
        self,
        bus: Bus,
        hub: Hub,
        quota: Quota,
        permits: Permits,
        limits: Limits,
        *,
        settings: EdgeSettings,
        instruments: StreamInstruments,
    ) -> None:
        self._permits = permits
        self._limits = limits
        self._bus = bus
        self._hub = hub
        self._quota = quota
        self._settings = settings
        self._instruments = instruments

    async def answer(self, exchange: Exchange) -> None:
        """Answer with a stream, whatever form the endpoint's answers have (S20).

        Raises:
            Rejection: -32602 where too much is asked for, 403 where a scope is lacking, 429 where the caller asks too
                often, 503 where there is no room; nothing was sent yet.
            ClientStalled: the client does not read.
            ClientGone: it has left before the stream began.
        """
        view, meta = exchange.view, exchange.message.meta
        asked = read_filter(exchange.params["notifications"], self._settings.stream_keys)
        check_declared(meta.get(CLIENT_INFO_META_KEY), meta[CLIENT_CAPABILITIES_META_KEY])
        exchange.forget_body()
        if len(str(exchange.id)) > LONGEST_STREAM_ID:
            raise bad_params(f"a stream's id has at most {LONGEST_STREAM_ID} characters")
        honoured = asked.supported(view.capabilities, tasks=takes_tasks(exchange))
        if honoured.task_ids and not declares(exchange):
            raise missing_capabilities((TASKS,))  # before any look-up (D2)
        self._permits.check(exchange, honoured.uris)
        await self._limits.take_request(exchange.endpoint, exchange.caller)
        stream = self._stream(exchange, honoured)
        exchange.forget()  # a stream lasts for hours, and needs neither the message nor this view any more
        if self._hub.is_draining or not honoured:
            stream.end(Exit.SHUTDOWN if self._hub.is_draining else Exit.NOTHING_HONOURED)
            await self._run(stream)
            return
        capabilities = meta[CLIENT_CAPABILITIES_META_KEY]
        del meta  # this frame lasts as long, and `_meta` may have megabytes
        await self.serve(stream, exchange.credential, capabilities)

    async def serve(
        self,
        stream: Stream,
        credential: Credential | None,
        capabilities: dict[str, Any] | None = None,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Give a stream its place, its share and its permission, and run it to its end.

        Args:
            stream: nothing was sent of it yet.
            credential: its client's, by which the permission is renewed.
            capabilities: its client's, for what it is told of tasks.
            before: is done once it has all that, and before anything is sent.

        Raises:
            Rejection: 503 where there is no room, as `Admission.admit`, and as `before`; nothing was sent yet.
            ClientStalled: the client does not read.
            ClientGone: it has left before the stream began.
        """
        stream.on_written = self._instruments.told.add
        # No context managers: their frames would be kept for each of thousands of streams.
        self._hub.join(stream)
        try:
            if stream.honoured.uris or stream.honoured.task_ids:
                await self._hear(stream, capabilities or {})
            await self._count(stream, credential, before)
        finally:
            self._hub.leave(stream)

    def _stream(self, exchange: Exchange, honoured: Filter) -> Stream:
        return Stream(
            exchange,
            subscription_id(exchange.id),
            endpoint=exchange.endpoint,
            permission=Unending(exchange.caller),
            honoured=honoured,
            view=exchange.view,
            **self.terms(),
        )

    def terms(self) -> Terms:
        """How long a stream that begins now lasts, and how much may wait for it."""
        settings = self._settings
        return Terms(
            keepalive=settings.keepalive,
            lasts=settings.stream_lasts * random.uniform(1 - _JITTER, 1),  # noqa: S311  # no secret
            bound=settings.stream_pending,
        )

    async def _hear(self, stream: Stream, capabilities: dict[str, Any]) -> None:
        """Hear the hints of a stream's resources and tasks, and be sure of it."""
        try:
            await self._hub.hear(stream, capabilities)
            await self._bus.flush(timeout=_FLUSHED_WITHIN)
        except BusError:
            raise self._hub.refusal("bus") from None

    async def _count(
        self, stream: Stream, credential: Credential | None, before: Callable[[], Awaitable[None]] | None
    ) -> None:
        """Run a stream as one of its partition's."""
        principal = stream.permission.principal
        partition = principal.partition
        try:
            granted = await self._quota.open(stream.endpoint, partition)
        except BusError:
            raise self._hub.refusal("subscriptions") from None
        if not granted:
            raise self._hub.refusal("partition")
        try:
            stream.permission = await self._permits.give(stream.endpoint, principal, credential)
            await self._hub.accept(stream)
            if before is not None:
                await before()
            await self._run(stream)
        finally:
            self._quota.close(stream.endpoint, partition)

    async def _run(self, stream: Stream) -> None:
        why = "failed"
        try:
            why = await stream.run()
        except ClientStalled:
            why = Exit.WRITE_FAILED
            raise
        finally:
            self._instruments.ended.add(1, why)
