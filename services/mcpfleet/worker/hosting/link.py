"""The parts of a connection to a source: its link, its listener, and the facts of its handshake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcp.shared.dispatcher import Dispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR, ErrorData, RequestId

from mcpfleet.wire.protocol import MODERN
from mcpfleet.worker.upstream import UpstreamError


class SourceFailed(Exception):
    """Raised when a connection cannot be made, or its handshake fails; the text is for the operator.

    Attributes:
        is_era: a handshake of 2025 was not tried yet, and may work.
        is_refused: the source refused the era that was spoken, and may speak another one.
    """

    def __init__(self, why: str, *, is_era: bool = False, is_refused: bool = False) -> None:
        super().__init__(why)
        self.is_era = is_era
        self.is_refused = is_refused


class SourceLink(Protocol):
    """Carries the messages of one connection."""

    @property
    def dispatcher(self) -> Dispatcher[TransportContext]:
        """Sends requests, and hears the source."""

    is_process: bool
    """Whether the source is a process of its own, which a handshake that it does not know may end."""

    def was_begun(self, request: RequestId) -> bool:
        """Return whether a byte of a request may have been sent."""

    def refusal(self, request: RequestId, error: ErrorData) -> UpstreamError | None:
        """Return the source's own refusal of a request that has failed; None where no answer came.

        Args:
            request: its id.
            error: the dispatcher's account of it.
        """

    def forget(self, request: RequestId) -> None:
        """Forget a request that has ended."""

    @property
    def is_over(self) -> bool:
        """Whether it must carry no further request, while those that run may go on."""

    async def ended(self) -> None:
        """Wait until `is_over`."""

    async def why_over(self) -> str:
        """Say why it carries no more, for the operator; it may wait a moment for what tells it."""


class Unheard(UpstreamError):
    """Raised when a source refuses a request before it runs, and may be sent it once more on a new connection (B8)."""


class Turned(UpstreamError):
    """Raised when a source turns a request away below the protocol, such as with a status of HTTP.

    Attributes:
        why: the cause, for the operator.
    """

    def __init__(self, message: str, why: str) -> None:
        super().__init__(INTERNAL_ERROR, message)
        self.why = why


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
