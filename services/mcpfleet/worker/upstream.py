"""The answers of a source, as a worker passes them on: raw results, its own errors, and calls without an answer."""

from __future__ import annotations

from typing import Any

from mcpfleet.app import Answer


class Raw(Answer):
    """A result of a source, with every member that it had (B2)."""

    @property
    def is_error(self) -> bool:
        """Whether a model should read it as a failure."""
        return self.members.get("isError") is True


class UpstreamError(Exception):
    """Raised when a source answers with a JSON-RPC error, which its caller gets (B3).

    Attributes:
        code: the source's.
        message: the source's.
        data: the source's; None leaves it out.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class NotSent(Exception):
    """Raised when no byte of a call was sent to its source, so it has not run and never will (B7)."""


class HeldElsewhere(Exception):
    """Raised when another worker has the connection of a call's caller: the call is handed on to it (B16).

    Attributes:
        worker: its process.
    """

    def __init__(self, worker: str) -> None:
        super().__init__(worker)
        self.worker = worker


class UpstreamLost(Exception):
    """Raised when the connection to a source ends in a call that was sent: it may have run (B7)."""
