"""The client of one request: its own statements, and the progress and log messages for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, get_args

from mcp_types import ClientCapabilities, Implementation, LoggingLevel
from pydantic import ValidationError

from mcpfleet.app.errors import ProgressError
from mcpfleet.contracts.apps import declares_apps


class Client:
    """The client of one request. Most handlers never use it, so it is read on demand.

    Args:
        info: `clientInfo` as it came; None or empty if the client gave none.
        capabilities: `clientCapabilities` as they came.
    """

    def __init__(self, info: Mapping[str, Any] | None = None, capabilities: Mapping[str, Any] | None = None) -> None:
        self._info = info
        self._capabilities = capabilities

    @cached_property
    def info(self) -> Implementation | None:
        """Its name and version; None if it gave none, or in another form."""
        try:
            return Implementation.model_validate(self._info) if self._info else None
        except ValidationError:
            return None

    @cached_property
    def capabilities(self) -> ClientCapabilities:
        """The capabilities that it declared for this request; malformed ones count as undeclared."""
        try:
            return ClientCapabilities.model_validate(self._capabilities or {})
        except ValidationError:
            return ClientCapabilities()

    @property
    def has_apps(self) -> bool:
        """Whether it shows documents of MCP Apps: its capability names their media type (X11)."""
        return declares_apps(self._capabilities or {})

    @property
    def extensions(self) -> Mapping[str, Mapping[str, Any]]:
        """The extensions that it declared for this request, with its settings of each (X47)."""
        declared = (self._capabilities or {}).get("extensions")
        if not isinstance(declared, dict):
            return {}
        return {name: settings for name, settings in declared.items() if isinstance(settings, dict)}


@dataclass(frozen=True, slots=True)
class Progress:
    """One report of a call's progress."""

    value: float
    total: float | None = None
    """The value at the end, if known."""
    message: str | None = None


def is_news(last: float | None, report: Progress) -> bool:
    """Return whether a report says more than `last`, the value that was sent before it; None for the first report.

    The first is sent even if it is 0. Integers are compared exactly, whatever their size.

    Raises:
        ProgressError: the value or the total is not finite, or the value is less than `last`.
    """
    for name, number in (("value", report.value), ("total", report.total)):
        if isinstance(number, float) and not math.isfinite(number):
            raise ProgressError(f"progress {name} must be finite, not {number}")
    if last is None or report.value > last:
        return True
    if report.value == last:
        return False
    raise ProgressError(f"progress must not go back: {report.value} after {last}")


LEVELS: Final[dict[str, int]] = {level: number for number, level in enumerate(get_args(LoggingLevel))}
"""From the least to the gravest."""


@dataclass(frozen=True, slots=True)
class LogMessage:
    """One message.

    Raises:
        ValueError: the level is unknown.
    """

    level: LoggingLevel
    data: Any
    """A text, or any JSON value."""
    logger: str | None = None

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ValueError(f"unknown log level {self.level!r}: known are {', '.join(LEVELS)}")

    def is_wanted(self, least: str) -> bool:
        """Return whether a request that asked for this level gets it."""
        return LEVELS[self.level] >= LEVELS.get(least, len(LEVELS))
