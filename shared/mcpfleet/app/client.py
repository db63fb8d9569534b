"""What a client says of itself in a request; it grants nothing (M25)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from mcp_types import ClientCapabilities, Implementation
from pydantic import ValidationError


class Client:
    """The client of one request. Most handlers never look, so it is read only when asked for.

    Args:
        info: `clientInfo` as it came; None or empty where the client gave none.
        capabilities: `clientCapabilities` as they came.
    """

    def __init__(self, info: Mapping[str, Any] | None = None, capabilities: Mapping[str, Any] | None = None) -> None:
        self._info = info
        self._capabilities = capabilities

    @cached_property
    def info(self) -> Implementation | None:
        """Its name and version; None where it gave none, or none of that form."""
        try:
            return Implementation.model_validate(self._info) if self._info else None
        except ValidationError:
            return None

    @cached_property
    def capabilities(self) -> ClientCapabilities:
        """What it declared for this request alone; what is not of the declared form counts as not declared."""
        try:
            return ClientCapabilities.model_validate(self._capabilities or {})
        except ValidationError:
            return ClientCapabilities()
