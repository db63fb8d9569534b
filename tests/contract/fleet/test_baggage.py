"""Baggage of a request, from `_meta` or its header to what a handler's libraries send on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry import propagate

from mcpfleet.app import App
from mcpfleet.testing.local import LocalFleet
from tests.unit.edge.asgi import request


@pytest.mark.rule("M23", "X75")
@pytest.mark.parametrize(
    ("meta", "headers", "sent"),
    [
        ({"baggage": "tenant=acme"}, {"baggage": "tenant=other"}, "tenant=acme"),
        ({}, {"baggage": "tenant=acme"}, "tenant=acme"),
        ({"baggage": "no baggage"}, {}, None),
        ({}, {}, None),
    ],
    ids=["_meta goes first", "a header", "malformed", "none"],
)
async def test_a_handlers_libraries_send_it_on(
    monkeypatch: pytest.MonkeyPatch, meta: dict[str, Any], headers: dict[str, str], sent: str | None
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")  # nobody takes the spans
    app = App("library", version="1.0.0")

    @app.tool()
    async def ask_others() -> dict[str, str]:
        """Return the headers that a library would send."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return carrier

    async with LocalFleet(app) as fleet, fleet.http() as http:
        message = request("tools/call", {"name": "ask_others", "arguments": {}}, meta=meta)
        own = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "ask_others",
        }
        result = (await http.post("/mcp", json=message, headers=own | headers)).json()["result"]
    found = json.loads(result["content"][0]["text"])
    assert found.get("baggage") == sent
    assert "traceparent" in found
