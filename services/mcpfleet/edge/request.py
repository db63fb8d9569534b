"""An MCP request that the ladder let through."""

from __future__ import annotations

from dataclasses import dataclass

from mcpfleet.edge.client import Client
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.wire.envelope import Envelope, RequestId


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked, by whom, and where."""

    client: Client
    endpoint: str
    """The endpoint's name."""
    id: RequestId
    envelope: Envelope
    trace: TraceContext
