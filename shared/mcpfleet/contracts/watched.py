"""What edges state of the URIs that streams watch, so that an application can watch the sources of those alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pydantic import Field

from mcpfleet.contracts.base import Message
from mcpfleet.contracts.manifest import LONGEST_NAME
from mcpfleet.contracts.subscriptions import Edge

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
