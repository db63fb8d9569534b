"""How far up the ladder a request comes, before its caller is needed."""

from __future__ import annotations

import pytest
import structlog

from mcpfleet.edge.protocol.validation import check_form, check_message, check_place
from mcpfleet.edge.transport.allowed_hosts import Doors
from mcpfleet.wire.envelope import Envelope
from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.strict import parse
from tests.unit.edge.asgi import Exchange, Post

DOORS = Doors("127.0.0.1:8000", [], log=structlog.get_logger())


def climb(post: Post, *, more: tuple[tuple[bytes, bytes], ...] = ()) -> Envelope:
    """Take a request up to where its caller is needed; `more` are headers that may repeat others."""
    exchange = Exchange(post)
    exchange.scope["headers"].extend(more)
    client = exchange.client()
    assert check_place(client, {"/mcp": "mcp"}, DOORS) == "mcp"
    check_form(client)
    return check_message(client.headers, post.body, parse(post.body))


def refusal(post: Post, *, more: tuple[tuple[bytes, bytes], ...] = ()) -> Rejection:
    """Why a request does not come so far."""
    with pytest.raises(Rejection) as raised:
        climb(post, more=more)
    return raised.value


def fails(post: Post) -> tuple[int, int | None]:
    """The status and the code of that."""
    rejection = refusal(post)
    return rejection.status, rejection.code
