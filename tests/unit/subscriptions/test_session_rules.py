"""Changes of sessions (D11, L11, L13, M80, N10)."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.contracts.sessions import ChangeSession, Session
from mcpfleet.subscriptions.rules import changed

A, B, C = (digit * 32 for digit in "abc")
ONE, TWO, THREE = "a:1", "a:2", "a:3"


def session(**fields: Any) -> Session:
    return Session(revision="2025-11-25", **fields)


def change(before: Session, **wanted: Any) -> Session | None:
    return changed(before, ChangeSession(session="0" * 32, owner="1" * 32, **wanted), 2)


@pytest.mark.rule("N10")
@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        ((), {}, ()),
        ((), {"opened": A}, (A,)),
        ((A,), {"opened": A}, (A,)),
        ((A,), {"opened": B}, (B, A)),
        ((B, A), {"opened": A}, (B, A)),  # a repeat that comes late makes nothing newer
        ((B, A), {"opened": C}, (C, B)),
        ((B, A), {"closed": B}, (A,)),
        ((B, A), {"closed": A}, (B,)),
        ((B, A), {"closed": C}, (B, A)),
        ((A,), {"closed": A}, ()),
        ((A,), {"opened": B, "closed": A}, (B,)),
    ],
)
def test_a_session_has_two_streams_the_newest_first(
    before: tuple[str, ...], wanted: dict[str, Any], after: tuple[str, ...]
) -> None:
    assert change(session(streams=before), **wanted) == session(streams=after)


@pytest.mark.rule("L11")
@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        ((), {"subscribe": ONE}, (ONE,)),
        ((ONE,), {"subscribe": ONE}, (ONE,)),
        ((ONE,), {"unsubscribe": TWO}, (ONE,)),
        ((ONE, TWO), {"unsubscribe": ONE}, (TWO,)),
        ((ONE, TWO), {"subscribe": TWO}, (ONE, TWO)),
        ((ONE, TWO), {"subscribe": THREE}, None),
        ((ONE, TWO), {"subscribe": THREE, "log_level": "info"}, None),
        ((ONE, TWO), {"subscribe": THREE, "unsubscribe": ONE}, (TWO, THREE)),
    ],
)
def test_a_session_subscribes_to_so_many_uris(
    before: tuple[str, ...], wanted: dict[str, Any], after: tuple[str, ...] | None
) -> None:
    assert change(session(uris=before), **wanted) == (None if after is None else session(uris=after))


def test_what_is_not_given_stays() -> None:
    known = session(log_level="info", uris=(ONE,), streams=(A,), lists={"tools": "x"})
    assert change(known) == known
    assert change(known, log_level="error", lists={"tools": "y"}) == known.model_copy(
        update={"log_level": "error", "lists": {"tools": "y"}}
    )
