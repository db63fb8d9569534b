"""The messages of subscriptions: edges count their streams, so that the whole fleet keeps to a partition's quota."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.exchange import Exchange, ask
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.manifest import POOL_PATTERN, digest_of

Edge = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
"""An edge's process id."""
Key = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
"""Names a partition."""

MOST_COUNTS = 1_000
"""Counts in one message."""


def partition_key(partition: str) -> str:
    """Name a partition, which may be anything that a token says, by a digest."""
    return digest_of(partition.encode())


class Count(Message):
    """How many streams of a partition an edge has at an endpoint: all of them, not one more or less.

    Whole numbers make every message safe to repeat, and one that is lost is made good by the next.
    """

    endpoint: str = Field(pattern=POOL_PATTERN)
    partition: Key
    streams: int = Field(ge=0)


class OpenStream(Message):
    """An edge is about to open a stream."""

    edge: Edge
    sequence: int = Field(ge=0)
    """Grows with each message of the edge, so that an older one that comes late changes nothing."""
    count: Count
    """The new stream is among them."""


class StreamOpened(Message):
    """Whether the partition's quota has room for it."""

    granted: bool


class CloseStreams(Message):
    """An edge has other numbers than it said before: streams closed."""

    edge: Edge
    sequence: int = Field(ge=0)
    counts: tuple[Count, ...] = Field(max_length=MOST_COUNTS, fail_fast=True)


class StreamsClosed(Message):
    """The numbers are written, as far as no later message said others."""

    counts: int
    """How many there were."""


class LeaseEdge(Message):
    """An edge is alive, and its numbers hold."""

    edge: Edge


class EdgeLeased(Message):
    """Its numbers go on counting."""

    wanted: bool = False
    """They are not there any more: say all of them again."""


OPEN = Exchange("subscriptions.open", OpenStream, StreamOpened, asked_by="edge", repeat=True)
CLOSE = Exchange("subscriptions.close", CloseStreams, StreamsClosed, asked_by="edge", repeat=True)
LEASE = Exchange("subscriptions.lease", LeaseEdge, EdgeLeased, asked_by="edge", repeat=True)


class SubscriptionsClient:
    """What edges ask of subscriptions; methods raise `BusError`."""

    def __init__(self, bus: Bus, *, timeout: float = 2.0) -> None:
        self._bus = bus
        self._timeout = timeout

    async def open(self, question: OpenStream) -> bool:
        """Ask whether a stream may be opened."""
        return (await ask(self._bus, OPEN, question, timeout=self._timeout)).granted

    async def close(self, message: CloseStreams) -> None:
        """Say how many streams there are now."""
        await ask(self._bus, CLOSE, message, timeout=self._timeout)

    async def lease(self, edge: str) -> bool:
        """Say that the edge is alive; returns whether all its numbers are wanted."""
        return (await ask(self._bus, LEASE, LeaseEdge(edge=edge), timeout=self._timeout)).wanted
