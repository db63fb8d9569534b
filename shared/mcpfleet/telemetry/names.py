"""The names of telemetry, each spelled once: attributes, values and spans by OpenTelemetry's conventions.

The MCP and GenAI names are spelled here because the constants in `opentelemetry.semconv` are deprecated. The
conventions moved to the repository semantic-conventions-genai, which publishes no Python package.
"""

from __future__ import annotations

from typing import Final

MCP_METHOD_NAME: Final = "mcp.method.name"
MCP_PROTOCOL_VERSION: Final = "mcp.protocol.version"
JSONRPC_REQUEST_ID: Final = "jsonrpc.request.id"
"""A JSON-RPC error's code, as text."""
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"

MESSAGING_SYSTEM: Final = "messaging.system"
MESSAGING_DESTINATION_NAME: Final = "messaging.destination.name"
MESSAGING_DESTINATION_TEMPLATE: Final = "messaging.destination.template"
MESSAGING_OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGING_OPERATION_NAME: Final = "messaging.operation.name"
MESSAGING_CONVERSATION_ID: Final = "messaging.message.conversation_id"
"""The call's id."""

NETWORK_PROTOCOL_NAME: Final = "network.protocol.name"
NETWORK_PROTOCOL_VERSION: Final = "network.protocol.version"
NETWORK_TRANSPORT: Final = "network.transport"
CLIENT_ADDRESS: Final = "client.address"
ERROR_TYPE: Final = "error.type"

EXECUTE_TOOL: Final = "execute_tool"
"""`gen_ai.operation.name` of a tool call; other methods have none."""
NATS: Final = "nats"
"""`messaging.system` of every hop on the bus."""
TOOL_ERROR: Final = "tool_error"
"""`error.type` of a tool result with `isError: true`."""
INSUFFICIENT_SCOPE: Final = "insufficient_scope"
"""`error.type` of a call whose handler found that its caller lacks a scope."""
CANCELLED: Final = "cancelled"
"""`error.type` of work that was cancelled before its end."""


def span_name(operation: str, target: str | None = None) -> str:
    """Name a span `operation target`, for example `tools/call search` or `process pool.{pool}.call`.

    The target has few values: a tool's or prompt's name, or a subject's template; never an id, never a URI.
    """
    return operation if target is None else f"{operation} {target}"
