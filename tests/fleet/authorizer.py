"""An authorizer of an operator's own."""

from __future__ import annotations

from mcpfleet.contracts.principal import Principal


async def authorize(token: str, endpoint: str, resource: str) -> Principal | None:
    """Know one token, for one endpoint."""
    return Principal(subject="ann") if (token, endpoint) == ("T", "mcp") and resource.endswith("/mcp") else None
