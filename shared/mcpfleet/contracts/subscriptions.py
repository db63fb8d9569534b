"""The messages of subscriptions: the streams that edges count, and the URIs that their streams watch.

Counting keeps a partition to its quota over the whole fleet. The watched URIs let an application watch the sources of
those alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.rpc import Rpc, ask
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.manifest import LONGEST_NAME, POOL_PATTERN, digest_of

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


OPEN = Rpc("subscriptions.open", OpenStream, StreamOpened, asked_by="edge", repeat=True)
CLOSE = Rpc("subscriptions.close", CloseStreams, StreamsClosed, asked_by="edge", repeat=True)
LEASE = Rpc("subscriptions.lease", LeaseEdge, EdgeLeased, asked_by="edge", repeat=True)


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


PART: Final = 256 * 1024
"""Characters of the URIs in one message, unless one URI has more."""
MOST_PARTS: Final = 1024


class Watched(Message):
    """A part of the set of a pool's URIs that an edge's streams watch; a whole set takes the former one's place.

    Sets are stated on change and again and again, so that one that is lost is made good by the next.
    """

    edge: Edge
    number: int = Field(ge=0)
    """Grows with each set of the edge; the parts of one set have the same."""
    part: int = Field(0, ge=0, lt=MOST_PARTS)
    parts: int = Field(1, gt=0, le=MOST_PARTS)
    """How many the set has."""
    uris: tuple[str, ...] = Field(max_length=PART + LONGEST_NAME, fail_fast=True)


def watched_subject(pool: str) -> str:
    """Where the sets of a pool's URIs go."""
    return f"pool.{pool}.watched"


def statements(edge: str, number: int, uris: Iterable[str]) -> list[Watched]:
    """Cut a set into messages; an empty one takes one too."""
    parts = list(_parts(sorted(uris)))[:MOST_PARTS] or [()]
    return [
        Watched(edge=edge, number=number, part=part, parts=len(parts), uris=each) for part, each in enumerate(parts)
    ]


def _parts(uris: Iterable[str]) -> Iterator[tuple[str, ...]]:
    part: list[str] = []
    size = 0
    for uri in uris:
        if part and size + len(uri) > PART:
            yield tuple(part)
            part, size = [], 0
        part.append(uri)
        size += len(uri)
    if part:
        yield tuple(part)
