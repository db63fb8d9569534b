"""How far a request comes before its caller is needed."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.edge.methods.registry import MethodTable, protocol_methods
from mcpfleet.edge.protocol.exchange import Exchange as ServerExchange
from mcpfleet.edge.protocol.exchange import Method
from mcpfleet.edge.protocol.validation import check_form, check_place
from mcpfleet.edge.server.compat_2025 import Compat2025
from mcpfleet.edge.server.router import Gate, RequestRouter
from mcpfleet.edge.transport.allowed_hosts import AllowedHosts
from mcpfleet.edge.transport.cors import Cors
from mcpfleet.wire.envelope import Envelope
from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.protocol import MODERN, SERVED_WITH_LEGACY
from mcpfleet.wire.strict import parse
from tests.unit.edge.asgi import Exchange, Post

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
    return RequestRouter(gate, UNNEEDED, Compat2025(endpoints, UNNEEDED, UNNEEDED), METHODS, UNNEEDED)


MODERN_ALONE = router(MODERN)


def identified(
    post: Post, *, more: tuple[tuple[bytes, bytes], ...] = (), checks: RequestRouter = MODERN_ALONE
) -> ServerExchange:
    """Take a request up to where its caller is needed; `more` are headers that may repeat others."""
    exchange = Exchange(post)
    exchange.scope["headers"].extend(more)
    served = exchange.client()
    served.endpoint = check_place(served, PATHS, HOSTS)
    check_form(served)
    checks.identify(served, post.body, parse(post.body))
    return served


def climb(post: Post, *, more: tuple[tuple[bytes, bytes], ...] = ()) -> Envelope:
    """The message of a request that comes so far."""
    return identified(post, more=more).message


def refusal(
    post: Post, *, more: tuple[tuple[bytes, bytes], ...] = (), checks: RequestRouter = MODERN_ALONE
) -> Rejection:
    """Why a request does not come so far."""
    with pytest.raises(Rejection) as raised:
        identified(post, more=more, checks=checks)
    return raised.value


def fails(post: Post) -> tuple[int, int | None]:
    """The status and the code of that."""
    rejection = refusal(post)
    return rejection.status, rejection.code
