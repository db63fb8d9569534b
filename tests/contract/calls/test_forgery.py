"""A compromised worker: the messages that it may send, which harm its own pool's callers alone (invariant 13)."""

from __future__ import annotations

import pytest

from mcpfleet.contracts.call import FrameKind
from tests.contract.bus.fabric import Fabric, heard
from tests.contract.calls.edge_harness import edge_harness
from tests.kit.waiting import until

HOSTILE = [
    pytest.param("a b", id="a space"),
    pytest.param("a\r\nPUB mcpfleet.hint.catalog.mcp 0\r\n\r\n", id="a line of the protocol"),
    pytest.param("a.b", id="two tokens"),
    pytest.param(">", id="a wildcard"),
    pytest.param("", id="nothing"),
    pytest.param("x" * 100_000, id="very long"),
]
"""Names that a compromised worker may give itself."""


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_worker_with_a_forged_name_costs_the_edge_no_link(fabric: Fabric, name: str) -> None:
    """Invariant 13: its name becomes a part of the subject of a cancel, and the calls of all pools share the link."""
    async with edge_harness(fabric) as at:
        call = at.calls.place(at.order())
        await at.worker.call()
        at.worker.lie(at.edge, name, call.id)
        await heard(at.worker.bus, at.edge)
        at.calls.release(call)
        await heard(at.edge)
    assert fabric.lines("link lost") == []


@pytest.mark.parametrize("line", ["1 a b", "1 >", "1", "", "1 " + "x" * 10_000])
async def test_a_forged_acceptance_costs_the_edge_no_link(fabric: Fabric, line: str) -> None:
    async with edge_harness(fabric) as at:
        call = at.calls.place(at.order())
        at.worker.frame(await at.worker.call(), FrameKind.ACCEPTED, b"", line)
        await until(lambda: call.heard)
        at.calls.release(call)
        await heard(at.edge)
    assert fabric.lines("link lost") == []
