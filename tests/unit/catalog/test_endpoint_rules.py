"""The replica that merges an endpoint where replicas have different settings."""

from __future__ import annotations

import pytest

from mcpfleet.catalog.rules import EndpointState, is_behind, is_disputed
from mcpfleet.contracts.endpoints import Endpoint

ENDPOINT = Endpoint(path="/mcp")


def book(*, revision: int = 2, settings: str = "", inputs: str = "same") -> EndpointState:
    return EndpointState("mcp", 7, revision, settings, inputs, "")


@pytest.mark.parametrize(
    ("theirs", "inputs", "behind"),
    [
        pytest.param(1, "same", True, id="a lower revision gives way"),
        pytest.param(2, "same", False, id="of equal revisions nothing but a change of the pools counts"),
        pytest.param(2, "other", True, id="and then whoever sees it merges"),
        pytest.param(3, "other", False, id="a higher revision is never overwritten"),
    ],
)
def test_who_merges_again(theirs: int, inputs: str, behind: bool) -> None:
    assert is_behind(book(revision=theirs, inputs=inputs), 2, "same") is behind


def test_other_settings_are_disputed_at_equal_revision_alone() -> None:
    assert is_disputed(book(settings="other"), ENDPOINT, 2)
    assert not is_disputed(book(settings=ENDPOINT.digest), ENDPOINT, 2)
    assert not is_disputed(book(settings="other", revision=1), ENDPOINT, 2)
    assert not is_disputed(book(settings="other", revision=3), ENDPOINT, 2)
