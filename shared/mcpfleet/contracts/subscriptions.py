"""The messages of subscriptions: the streams that edges count, and the URIs that their streams watch.

Counting holds a partition to its quota over the whole fleet. The watched URIs let an application watch the sources of
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
    """Return the digest that names a partition, which may be any text of a token."""
    return digest_of(partition.encode())


class Count(Message):
    """The number of streams that a partition has at an edge and endpoint: all of them, not a difference.

    Whole numbers make every message safe to repeat, and the next one replaces a lost one.
    """

    endpoint: str = Field(pattern=POOL_PATTERN)
    partition: Key
    streams: int = Field(ge=0)


class OpenStream(Message):
    """An edge is about to open a stream."""

    edge: Edge
    sequence: int = Field(ge=0)
    """Grows with each message of the edge, so that a late older one changes nothing."""
    count: Count
    """It includes the new stream."""


class StreamOpened(Message):
    """Whether the partition's quota has room for it."""

    granted: bool


class CloseStreams(Message):
    """An edge has other numbers than before, since streams have closed."""

    edge: Edge
    sequence: int = Field(ge=0)
    counts: tuple[Count, ...] = Field(max_length=MOST_COUNTS, fail_fast=True)


class StreamsClosed(Message):
    """The numbers are written, unless a later message gave others."""

    counts: int
    """The number of written counts."""


class LeaseEdge(Message):
    """An edge is alive, and its numbers hold."""

    edge: Edge


class EdgeLeased(Message):
    """Its numbers go on counting."""

    wanted: bool = False
    """The numbers are lost: send all of them again."""


OPEN = Rpc("subscriptions.open", OpenStream, StreamOpened, asked_by="edge", repeat=True)
CLOSE = Rpc("subscriptions.close", CloseStreams, StreamsClosed, asked_by="edge", repeat=True)
LEASE = Rpc("subscriptions.lease", LeaseEdge, EdgeLeased, asked_by="edge", repeat=True)


class SubscriptionsClient:
    """Asks subscriptions for edges; methods raise `BusError`."""

    def __init__(self, bus: Bus, *, timeout: float = 2.0) -> None:
        self._bus = bus
        self._timeout = timeout

    async def open(self, question: OpenStream) -> bool:
        """Ask whether a stream may be opened."""
        return (await ask(self._bus, OPEN, question, timeout=self._timeout)).granted

    async def close(self, message: CloseStreams) -> None:
        """Send the present numbers of streams."""
        await ask(self._bus, CLOSE, message, timeout=self._timeout)

    async def lease(self, edge: str) -> bool:
        """Tell that the edge is alive; return whether all its numbers are wanted."""
        return (await ask(self._bus, LEASE, LeaseEdge(edge=edge), timeout=self._timeout)).wanted


PART: Final = 256 * 1024
"""Characters of the URIs in one message, unless one URI has more."""
MOST_PARTS: Final = 1024


class Watched(Message):
    """A part of the URIs of a pool that an edge's streams watch; a whole set replaces the former one.

    Sets are sent on change and repeatedly, so the next one replaces a lost one.
    """

    edge: Edge
    number: int = Field(ge=0)
    """Grows with each set of the edge; the parts of one set have the same."""
    part: int = Field(0, ge=0, lt=MOST_PARTS)
    parts: int = Field(1, gt=0, le=MOST_PARTS)
    """The number of parts of the set."""
    uris: tuple[str, ...] = Field(max_length=PART + LONGEST_NAME, fail_fast=True)


def watched_subject(pool: str) -> str:
    """Return the subject of the sets of a pool's URIs."""
    return f"pool.{pool}.watched"


def watch_report(edge: str, number: int, uris: Iterable[str]) -> list[Watched]:
    """Return the messages that report a set to its pool; an empty set takes one message too."""
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
