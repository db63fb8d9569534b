"""The capabilities that a client must declare before a handler may ask it (D16)."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.wire.protocol import missing


@pytest.mark.rule("D16")
@pytest.mark.parametrize(
    ("ask", "capabilities"),
    [
        ("sampling", {"sampling": {}}),
        ("sampling", {"sampling": {"tools": {}}}),
        ("sampling.tools", {"sampling": {"tools": {}}}),
        ("roots", {"roots": {"listChanged": True}}),
        ("elicitation.form", {"elicitation": {}}),
        ("elicitation.form", {"elicitation": {"form": {}}}),
        ("elicitation.form", {"elicitation": {"form": {}, "url": {}}}),
        ("elicitation.url", {"elicitation": {"url": {}}}),
    ],
)
def test_a_capability_that_covers_what_is_asked(ask: str, capabilities: dict[str, Any]) -> None:
    assert missing([ask], capabilities) == []


@pytest.mark.rule("D16")
@pytest.mark.parametrize(
    ("ask", "capabilities"),
    [
        ("sampling", {}),
        ("sampling", {"sampling": None}),
        ("sampling", {"sampling": True}),
        ("sampling.tools", {"sampling": {}}),
        ("roots", {"sampling": {}}),
        ("elicitation.form", {}),
        ("elicitation.form", {"elicitation": {"url": {}}}),
        ("elicitation.url", {"elicitation": {}}),
        ("elicitation.url", {"elicitation": {"form": {}}}),
    ],
)
def test_a_capability_that_does_not(ask: str, capabilities: dict[str, Any]) -> None:
    """An elicitation capability without modes means forms alone."""
    assert missing([ask], capabilities) == [ask]


@pytest.mark.rule("D16")
def test_only_what_is_missing_is_listed_in_the_order_of_the_declaration() -> None:
    asks = ["sampling", "roots", "elicitation.url"]
    assert missing(asks, {"roots": {}}) == ["sampling", "elicitation.url"]
    assert missing([], {}) == []
