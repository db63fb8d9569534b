"""The method table: which revision has which method, and rows that an endpoint's snapshot declares."""

from __future__ import annotations

import pytest

from mcpfleet.edge.methods.registry import EVERY, MODERN_ONLY, SESSION_ERA, MethodTable
from mcpfleet.edge.protocol.exchange import Exchange, Method
from mcpfleet.edge.protocol.schema import no_parameters
from mcpfleet.wire.protocol import LEGACY, MODERN
from tests.unit.edge.server.checks import METHODS, ROWS


async def answer(exchange: Exchange) -> None:
    """Answer nothing: no test here calls it."""
    del exchange


def row(name: str, revisions: frozenset[str] = EVERY) -> Method:
    return Method(name, no_parameters, answer, revisions)


@pytest.mark.parametrize("name", ["tools/call", "resources/read", "prompts/list", "completion/complete"])
def test_methods_of_every_revision_have_one_row(name: str) -> None:
    rows = {METHODS.find("mcp", name, revision) for revision in EVERY}
    assert len(rows) == 1
    assert None not in rows


@pytest.mark.parametrize(
    ("name", "revisions"),
    [
        ("server/discover", MODERN_ONLY),
        ("subscriptions/listen", MODERN_ONLY),
        ("tasks/get", MODERN_ONLY),
        ("initialize", SESSION_ERA),
        ("ping", SESSION_ERA),
        ("resources/subscribe", SESSION_ERA),
    ],
)
def test_a_revision_has_no_method_of_another(name: str, revisions: frozenset[str]) -> None:
    having = {revision for revision in EVERY if METHODS.find("mcp", name, revision) is not None}
    assert having == revisions


def test_an_endpoints_own_methods_are_found_there_and_nowhere_else() -> None:
    own = {"shop/restock": row("shop/restock", MODERN_ONLY)}
    table = MethodTable(ROWS, lambda endpoint: own if endpoint == "shop" else {})
    assert table.find("shop", "shop/restock", MODERN) is own["shop/restock"]
    assert table.find("mcp", "shop/restock", MODERN) is None
    assert table.find("shop", "shop/restock", LEGACY[0]) is None


def test_no_endpoint_can_replace_a_method_of_the_protocol() -> None:
    table = MethodTable(ROWS, lambda _endpoint: {"tools/call": row("tools/call")})
    assert table.find("mcp", "tools/call", MODERN) is METHODS.find("mcp", "tools/call", MODERN)


@pytest.mark.parametrize("each", [each for each in ROWS if each.names is not None], ids=lambda each: each.name)
def test_a_parameter_that_a_header_mirrors_is_one_that_the_method_needs(each: Method) -> None:
    with pytest.raises(Exception, match=each.names):
        each.check({})
