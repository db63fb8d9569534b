"""Messages for the client's log, and which of them a request wants to hear (M49)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, get_args

from mcp_types import LoggingLevel

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
        """Whether a request that asked for this level hears it."""
        return LEVELS[self.level] >= LEVELS.get(least, len(LEVELS))
