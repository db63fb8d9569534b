"""Who merges an endpoint."""

from __future__ import annotations

import pytest

from mcpfleet.catalog.charge import Book, is_ours, may_take
from mcpfleet.contracts.endpoints import Endpoint


def book(*, revision: int, settings: str = "", has_lapsed: bool = False) -> Book:
    return Book("mcp", 1, revision, settings, "", "", is_stale=False, has_lapsed=has_lapsed)


@pytest.mark.parametrize(
    ("theirs", "has_lapsed", "starting", "may"),
    [
        (1, False, False, True),
        (2, False, False, False),
        (2, False, True, True),
        (2, True, False, True),
        (3, True, True, False),
    ],
)
def test_settings_in_charge_give_way(theirs: int, has_lapsed: bool, starting: bool, may: bool) -> None:
    assert may_take(book(revision=theirs, has_lapsed=has_lapsed), 2, starting=starting) is may


def test_settings_are_ours_by_their_content_and_revision() -> None:
    endpoint = Endpoint(path="/mcp")
    assert is_ours(book(revision=1, settings=endpoint.digest), endpoint, 1)
    assert not is_ours(book(revision=1, settings=endpoint.digest), endpoint, 2)
    assert not is_ours(book(revision=1, settings=endpoint.digest), Endpoint(path="/other"), 1)
