"""Who merges an endpoint: of replicas whose settings differ, one set is in charge, so that snapshots do not flap."""

from __future__ import annotations

from dataclasses import dataclass

from mcpfleet.contracts.endpoints import Endpoint


@dataclass(frozen=True, slots=True)
class Book:
    """An endpoint's row, without the snapshot's body."""

    endpoint: str
    number: int
    revision: int
    """The revision of the settings in charge."""
    settings: str
    """Names the settings in charge."""
    inputs: str
    digest: str
    is_stale: bool
    """Those in charge are to say so again."""
    has_lapsed: bool
    """Those in charge said nothing for so long that others may take over."""


def is_ours(book: Book, endpoint: Endpoint, revision: int) -> bool:
    """Whether replicas with our settings are in charge."""
    return (book.revision, book.settings) == (revision, endpoint.digest)


def may_take(book: Book, revision: int, *, starting: bool) -> bool:
    """Whether our settings may replace those in charge.

    A lower revision never replaces a higher one. Of equal ones, which an operator did not tell apart, those of the
    replica that started last are in charge, until no replica with them is left.
    """
    if book.revision != revision:
        return book.revision < revision
    return starting or book.has_lapsed
