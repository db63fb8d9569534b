"""The lines that calls leave: what they name, and what becomes of those that nobody can be given."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any

import pytest

from mcpfleet.contracts.catalog import Listed, Snapshot
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import ANONYMOUS
from mcpfleet.edge.protocol.exchange import Inquiry, Request
from mcpfleet.edge.server.audit import AUDITED, Audit
from mcpfleet.telemetry.instruments import EdgeInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.telemetry.spans import Span
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.views.rights import Policy
from mcpfleet.views.view import view_of
from mcpfleet.wire.envelope import Envelope
from tests.unit.edge.asgi import Exchange, Post

NAME, URI = "search", "library://books"
DEFINITIONS = (
    Definition(kind="tool", name=NAME, wire={"name": NAME, "inputSchema": {"type": "object"}}),
    Definition(kind="prompt", name=NAME, wire={"name": NAME}),
    Definition(kind="resource", name=URI, wire={"name": "books", "uri": URI}),
)
SNAPSHOT = Snapshot(
    endpoint="mcp",
    number=1,
    name="library",
    version="1",
    listed=tuple(Listed(pool="library", digest=each.digest, definition=each) for each in DEFINITIONS),
)
POLICY = Policy.of(SNAPSHOT, hides_uncovered=False)
VIEW = view_of(SNAPSHOT, POLICY, POLICY.rights(ANONYMOUS))


def inquiry(method: str = "tools/call") -> Inquiry:
    """A request that names a tool, a prompt and a resource, whatever it is of."""
    params: dict[str, Any] = {"name": NAME, "uri": URI}
    span = Span(TraceContext.fresh(sampled=False))
    return Inquiry(Request(Exchange(Post()).client(), "mcp", 1, Envelope(1, method, params, {}), span), ANONYMOUS, VIEW)


def lost(metrics: Metrics) -> float:
    [family] = [each for each in metrics.read() if each.name == "mcpfleet.edge.audit.lost"]
    return sum(point.value for point in family.points)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("tools/call", NAME),
        ("prompts/get", NAME),
        ("resources/read", URI),
        ("tasks/update", None),
        ("tasks/cancel", None),
    ],
)
async def test_each_method_that_leaves_a_line_says_what_it_used(
    monkeypatch: pytest.MonkeyPatch, method: str, target: str | None
) -> None:
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    audit = Audit("edge", "e1", is_on=True, lost=EdgeInstruments(Metrics()).audit_lost)
    audit.note(inquiry(method), "ok", 0.1)
    audit.write()
    assert json.loads(written.getvalue())["target"] == target
    assert method in AUDITED


async def test_lines_that_nobody_reads_are_counted_and_no_call_fails_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    audit = Audit("edge", "e1", is_on=True, lost=EdgeInstruments(metrics).audit_lost)
    reader, writer = os.pipe()
    os.close(reader)
    with io.TextIOWrapper(io.FileIO(writer, "w"), write_through=True) as unread, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", unread)
        for _ in range(3):
            audit.note(inquiry(), "ok", 0.1)
        audit.write()
    assert lost(metrics) == 3
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    audit.note(inquiry(), "ok", 0.1)
    audit.write()
    assert (written.getvalue().count("\n"), lost(metrics)) == (1, 3), "it goes on where somebody reads again"
