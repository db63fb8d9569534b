"""The ways in which a resource's handler can say that its caller may not read."""

from __future__ import annotations

from mcpfleet.app import NotFound, ProtocolError, ToolError


def refuse(how: str, uri: str) -> None:
    """Raise the refusal, or the mistake, of this name; any other name refuses nothing."""
    match how:
        case "found":
            raise NotFound(uri)
        case "said":
            raise ToolError("not yours")
        case "coded":
            raise ProtocolError(-1, "not yours")
        case "failed":
            raise RuntimeError("a mistake")
