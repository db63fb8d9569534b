"""How far a request comes before its caller is needed."""

from __future__ import annotations

from typing import Any

import structlog

from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.edge.methods.registry import MethodTable, protocol_methods
from mcpfleet.edge.protocol.exchange import Method
from mcpfleet.edge.server.compat_2025 import Compat2025
from mcpfleet.edge.server.router import Gate, RequestRouter
from mcpfleet.edge.transport.allowed_hosts import AllowedHosts
from mcpfleet.edge.transport.cors import Cors
from mcpfleet.wire.protocol import MODERN, SERVED_WITH_LEGACY

HOSTS = AllowedHosts("127.0.0.1:8000", [], log=structlog.get_logger())
PATHS = {"/mcp": "mcp"}


class Unneeded:
    """Stands where a part is that no check before the caller needs."""

    def __getattr__(self, name: str) -> Any:
        return self


UNNEEDED: Any = Unneeded()
ROWS: tuple[Method, ...] = protocol_methods(UNNEEDED, UNNEEDED, UNNEEDED, UNNEEDED, UNNEEDED, skills=UNNEEDED)
METHODS = MethodTable(ROWS)


def router(*revisions: str) -> RequestRouter:
    """The edge's order of checks over one endpoint, which serves these revisions, or all."""
    endpoints = {"mcp": Endpoint.model_validate({"path": "/mcp", "revisions": revisions or SERVED_WITH_LEGACY})}
    gate = Gate(endpoints, PATHS, HOSTS, Cors(()), (), UNNEEDED, UNNEEDED)
    return RequestRouter(gate, UNNEEDED, Compat2025(endpoints, UNNEEDED, UNNEEDED, UNNEEDED), METHODS, UNNEEDED)


MODERN_ALONE = router(MODERN)
