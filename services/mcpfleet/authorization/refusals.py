"""Lines about refused credentials: for a person to read, and not thousands when a subject is revoked."""

from __future__ import annotations

import time
from typing import Final

from structlog.typing import FilteringBoundLogger

from mcpfleet.authorization.rules import Refused

_A_SECOND: Final = 20


class Refusals:
    """Logs refusals, at most 20 a second; how many more there were is said with the next one."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._second = 0
        self._said = 0
        self._unsaid = 0

    def note(self, endpoint: str, refused: Refused) -> None:
        """Log why a credential was refused, and nothing of it."""
        second = int(time.monotonic())
        if second != self._second:
            if self._unsaid:
                self._log.info("more credentials refused", number=self._unsaid)
            self._second, self._said, self._unsaid = second, 0, 0
        if self._said < _A_SECOND:
            self._said += 1
            self._log.info("credential refused", endpoint=endpoint, reason=str(refused))
        else:
            self._unsaid += 1
