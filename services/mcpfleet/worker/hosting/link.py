"""The parts of a connection to a source: its link, its listener, and the facts of its handshake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcp.shared.dispatcher import Dispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import RequestId

from mcpfleet.wire.protocol import MODERN


class SourceFailed(Exception):
    """Raised when a connection cannot be made, or its handshake fails; the text is for the operator.

    Attributes:
        is_era: a handshake of 2025 was not tried yet, and may work.
    """

    def __init__(self, why: str, *, is_era: bool = False) -> None:
        super().__init__(why)
        self.is_era = is_era


class SourceLink(Protocol):
    """Carries the messages of one connection."""

    @property
    def dispatcher(self) -> Dispatcher[TransportContext]:
        """Sends requests, and hears the source."""

    def was_begun(self, request: RequestId) -> bool:
        """Return whether a byte of a request may have been sent."""

    def was_refused(self, request: RequestId) -> bool:
        """Return whether the source itself answered a request with an error."""

    def forget(self, request: RequestId) -> None:
        """Forget a request that has ended."""

    async def why_over(self) -> str:
        """Say why it carries no more, for the operator; it may wait a moment for what tells it."""


OpenLink = Callable[[], AbstractAsyncContextManager[SourceLink]]
"""Opens a link for the length of a block; raises `SourceFailed`."""


class Listener(Protocol):
    """Hears what a source says by itself."""

    def lists_changed(self) -> None:
        """Hear that a list may have changed."""

    def resource_updated(self, uri: str) -> None:
        """Hear that a resource has changed."""

    def logged(self, params: Mapping[str, Any]) -> None:
        """Hear a log message that belongs to no call."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A source's description of itself in its handshake."""

    revision: str
    server: dict[str, Any] = field(default_factory=dict)
    capabilities: dict[str, Any] = field(default_factory=dict)
    instructions: str | None = None

    @property
    def is_modern(self) -> bool:
        """Whether requests carry what a handshake told before."""
        return self.revision == MODERN

    def has(self, capability: str, setting: str | None = None) -> bool:
        """Return whether it has a capability, and a setting of it where one is named."""
        held = self.capabilities.get(capability)
        return isinstance(held, dict) and (setting is None or held.get(setting) is True)
