"""An MCP request that the ladder let through, and what is known of it once its caller is admitted."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.transport.client import Client
from mcpfleet.telemetry.spans import Span
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.views.view import View
from mcpfleet.wire import projection, reply
from mcpfleet.wire.envelope import Envelope, RequestId
from mcpfleet.wire.errors import bad_params

_MOST_DECLARED: Final = 16 * 1024
"""Bytes of what a client says of itself, where that is kept for longer than a request."""


class Request(NamedTuple):
    """What was asked, and where."""

    client: Client
    endpoint: str
    """The endpoint's name."""
    id: RequestId
    envelope: Envelope
    span: Span

    @property
    def trace(self) -> TraceContext:
        """What is caused by the request carries it."""
        return self.span.context

    @property
    def params(self) -> dict[str, Any]:
        """The method's parameters, of the form that `structure` checks."""
        return self.envelope.params


class Inquiry(NamedTuple):
    """A request with its caller, and what that caller sees."""

    request: Request
    principal: Principal
    view: View
    session: str | None = None
    """Names the session that the request came in, of the revisions of 2025."""

    def response(self, result: bytes, *, wraps: bool = False) -> bytes:
        """Put a result into the response, in the form of the request's revision.

        Args:
            result: as 2026-07-28 has it.
            wraps: the revisions of 2025 see the structured content below a member.

        Raises:
            NotSpliceable: a worker's result is malformed.
        """
        envelope = self.request.envelope
        if not envelope.is_legacy:
            return reply.response(self.request.id, result, self.view.server)
        try:
            return reply.plain_response(self.request.id, projection.result(result, envelope.revision, wraps=wraps))
        except ValueError as error:
            raise reply.NotSpliceable("a result must be an object") from error


def check_declared(client: Any, capabilities: Any) -> None:
    """Check the size of what a client says of itself, before a stream or a session keeps it.

    Args:
        client: `clientInfo`.
        capabilities: `clientCapabilities`, or `capabilities` in the revisions of 2025.

    Raises:
        Rejection: -32602 where it has more than 16 KiB.
    """
    if len(to_json(client)) + len(to_json(capabilities)) > _MOST_DECLARED:
        raise bad_params(f"clientInfo and capabilities have more than {_MOST_DECLARED} bytes")
