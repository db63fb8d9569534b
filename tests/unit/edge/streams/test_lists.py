"""Which lists' changes a stream is sent."""

from __future__ import annotations

import pytest

from mcpfleet.contracts.catalog import Listed, Snapshot
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.edge.streams.hub import lists_for
from mcpfleet.edge.streams.lease import StreamLease
from mcpfleet.edge.streams.stream import Stream
from mcpfleet.views.rights import Policy, Rights
from mcpfleet.views.view import view_of
from tests.unit.edge.streams.opened import stream


def seeing(*scopes: str, principal: Principal | None = None) -> Stream:
    """A stream whose caller is shown a list of one pool, which needs a scope."""
    definition = Definition(kind="lister", name="shelf", wire={}, scopes=("read",))
    listed = (Listed(pool="library", digest="0" * 32, definition=definition),)
    snapshot = Snapshot(endpoint="mcp", number=1, name="library", version="1", listed=listed)
    opened = stream(lease=StreamLease(principal or Principal(subject="ann", scopes=scopes))).stream
    opened.see(view_of(snapshot, Policy.of(snapshot, hides_uncovered=False), Rights(is_named=True)))
    return opened


@pytest.mark.parametrize(("pool", "told"), [("library", True), ("other", False), (None, True)])
def test_a_pool_speaks_for_its_own_lists_alone(pool: str | None, told: bool) -> None:
    assert lists_for(seeing("read"), pool) is told


@pytest.mark.rule("T12")
def test_who_lacks_a_lists_scopes_hears_nothing_of_it() -> None:
    assert not lists_for(seeing(), "library")
    assert not lists_for(seeing(principal=Principal(client="cli")), "library")
    assert lists_for(seeing(principal=ANONYMOUS), "library")
