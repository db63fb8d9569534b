"""An MCP request that the ladder let through, and what is known of it once its caller is admitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.client import Client
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.views.view import View
from mcpfleet.wire.envelope import Envelope, RequestId


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked, and where."""

    client: Client
    endpoint: str
    """The endpoint's name."""
    id: RequestId
    envelope: Envelope
    trace: TraceContext

    @property
    def params(self) -> dict[str, Any]:
        """The method's parameters, of the form that `structure` checks."""
        return self.envelope.params


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A request with its caller, and what that caller sees."""

    request: Request
    principal: Principal
    view: View
