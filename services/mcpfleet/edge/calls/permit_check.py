"""Asks the permits of pools whether callers may read URIs, many in one message (X50)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.catalog import Listed
from mcpfleet.contracts.hints import OwnChange
from mcpfleet.contracts.permits import AskedByCaller, ask_permits
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.telemetry.instruments import StreamInstruments


class ReadQuestion(NamedTuple):
    """The question whether a caller may read a URI, or hear of a key of an own notification."""

    endpoint: str
    principal: Principal
    uri: str | OwnChange

    @property
    def word(self) -> str:
        """The URI or key, as a permit is asked about it."""
        return self.uri.key if isinstance(self.uri, OwnChange) else self.uri


class Decision(NamedTuple):
    """The answer to a question."""

    may_read: bool
    definition: str | None
    """The digest of the definition that decided; none where the caller's view has nothing under the URI."""


class PermitCheck:
    """Asks one pool at a time. The caller bounds how many questions a message has."""

    def __init__(
        self, bus: Bus, settings: EdgeSettings, *, instruments: StreamInstruments, log: FilteringBoundLogger
    ) -> None:
        self._bus = bus
        self._within = settings.read_checked_within
        self._durations = instruments.read_checks
        self._log = log

    async def ask(self, listed: Listed, questions: Sequence[ReadQuestion]) -> list[Decision | None]:
        """Ask whether callers may read URIs of one definition.

        Returns:
            A decision for each question; None where the permit gave no answer.
        """
        covered = [each for each in questions if each.principal.holds(listed.definition.scopes)]
        uris: dict[Principal, list[str]] = {}
        for each in covered:
            uris.setdefault(each.principal, []).append(each.word)
        began = time.monotonic()
        answers = await self._ask(listed, uris)
        seconds = time.monotonic() - began
        found: list[Decision | None] = []
        for question in questions:
            may_read: bool | None = False
            if question.principal.holds(listed.definition.scopes):
                may_read = answers.get((question.principal, question.word))
                outcome = "undecided" if may_read is None else "permitted" if may_read else "refused"
                self._durations.record(seconds, outcome)
            found.append(None if may_read is None else Decision(may_read, listed.digest))
        return found

    async def _ask(self, listed: Listed, uris: dict[Principal, list[str]]) -> dict[tuple[Principal, str], bool]:
        callers = [AskedByCaller(principal=principal, uris=tuple(wanted)) for principal, wanted in uris.items()]
        if not callers:
            return {}
        try:
            answers = await ask_permits(self._bus, listed.pool, listed.digest, callers, timeout=self._within)
        except BusError as error:
            self._log.warning("permit not answered", resource=listed.definition.name, pool=listed.pool, why=str(error))
            return {}
        return {
            (caller.principal, uri): may_read
            for caller, answer in zip(callers, answers, strict=True)
            if answer is not None
            for uri, may_read in zip(caller.uris, answer, strict=True)
        }
