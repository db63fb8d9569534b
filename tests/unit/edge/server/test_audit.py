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
from mcpfleet.edge.protocol.exchange import Exchange as ServerExchange
from mcpfleet.edge.server.audit import Audit
from mcpfleet.process.logs import Format
from mcpfleet.telemetry.instruments import EdgeInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.views.rights import Policy
from mcpfleet.views.view import view_of
from mcpfleet.wire.envelope import Envelope
from mcpfleet.wire.protocol import MODERN
from tests.unit.edge.asgi import admitted
from tests.unit.edge.server.checks import METHODS

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


def exchange(method: str = "tools/call") -> ServerExchange:
    """A request that names a tool, a prompt and a resource, whatever it is of."""
    params: dict[str, Any] = {"name": NAME, "uri": URI}
    of = admitted(Envelope(1, method, params, {}), VIEW)
    of.method = METHODS.find("mcp", method, MODERN)
    return of


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
    audited = exchange(method)
    audit.note(audited, "ok", 0.1)
    audit.write()
    assert json.loads(written.getvalue())["target"] == target
    assert audited.method is not None
    assert audited.method.audit is not None


async def test_lines_that_nobody_reads_are_counted_and_no_call_fails_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    audit = Audit("edge", "e1", is_on=True, lost=EdgeInstruments(metrics).audit_lost)
    reader, writer = os.pipe()
    os.close(reader)
    with io.TextIOWrapper(io.FileIO(writer, "w"), write_through=True) as unread, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", unread)
        for _ in range(3):
            audit.note(exchange(), "ok", 0.1)
        audit.write()
    assert lost(metrics) == 3
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    audit.note(exchange(), "ok", 0.1)
    audit.write()
    assert (written.getvalue().count("\n"), lost(metrics)) == (1, 3), "it goes on where somebody reads again"


async def test_a_line_for_people_is_short_and_has_the_reason_of_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    audit = Audit("edge", "e1", is_on=True, lost=EdgeInstruments(Metrics()).audit_lost, form="console")
    refused = exchange()
    audit.note(refused, "-32602", 0.012, "limit: must be a whole number")
    audit.note(exchange(), "ok", 0.003)
    audit.write()
    told, fine = written.getvalue().splitlines()
    assert "tools/call search: -32602 in 12 ms: limit: must be a whole number" in told
    assert refused.trace.trace_id in told
    assert fine.endswith("tools/call search: ok in 3 ms")


async def test_a_refused_stranger_is_a_line_for_people_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has authorization's reason, which the client does not learn."""
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    lost_lines = EdgeInstruments(Metrics()).audit_lost
    forms: tuple[Format, ...] = ("console", "json")
    for form in forms:
        audit = Audit("edge", "e1", is_on=True, lost=lost_lines, form=form)
        audit.note_stranger("the token has expired")
        audit.write()
    assert written.getvalue().endswith("401: the token has expired\n")
    assert written.getvalue().count("\n") == 1
