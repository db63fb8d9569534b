"""An endpoint's row, and who may write it: replicas whose settings differ must not overwrite each other for ever."""

from __future__ import annotations

from dataclasses import dataclass

from mcpfleet.contracts.endpoints import Endpoint


@dataclass(frozen=True, slots=True)
class Book:
    """An endpoint's row, without the snapshot's body."""

    endpoint: str
    number: int
    revision: int
    """The revision of the settings that it was merged by (MCPFLEET_CATALOG_REVISION)."""
    settings: str
    """Names those settings. It decides nothing: it shows that others have other settings."""
    inputs: str
    """Names what the pools listed then."""
    digest: str


def is_behind(book: Book, revision: int, inputs: str) -> bool:
    """Whether a replica of this revision is to merge the endpoint again.

    A lower revision never overwrites a higher one. Of equal revisions, whoever first sees that the pools list something
    else merges, by its own settings; nobody merges for other settings alone, since two such replicas would never end.
    """
    if book.revision != revision:
        return book.revision < revision
    return book.inputs != inputs


def is_disputed(book: Book, endpoint: Endpoint, revision: int) -> bool:
    """Whether it was merged by other settings of the same revision, which the operator did not tell apart from ours."""
    return book.revision == revision and book.settings != endpoint.digest
