"""Applies authorization's revocations to an edge's verdicts, and fetches those that were missed."""

from __future__ import annotations

import time
from typing import Final

import anyio
from anyio.abc import TaskStatus
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.authorization import AUTHORITY_SUBJECT, Authority, AuthorizationClient
from mcpfleet.edge.identity.admission import Admission
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.process.auto_reset_event import AutoResetEvent

_CHECKS: Final = 10
"""Checks for silence within MCPFLEET_AUTHORITY_SILENCE."""
_LAST: Final = 2**62
"""A number that no revocation has. The question for what follows it returns the newest number alone."""


class Revocations:
    """Applies all revocations in their order: from hints, and by asking after a gap or in silence."""

    def __init__(
        self,
        bus: Bus,
        client: AuthorizationClient,
        admission: Admission,
        settings: EdgeSettings,
        *,
        log: FilteringBoundLogger,
    ) -> None:
        self._bus = bus
        self._client = client
        self._admission = admission
        self._silence = settings.authority_silence
        self._log = log
        self._has_begun = False
        self._heard_at = time.monotonic()
        self._missing = AutoResetEvent()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Take hints, and ask for what they leave out, until cancelled."""
        await self._bus.subscribe(AUTHORITY_SUBJECT, self._on_hint)
        self._bus.on_link(self._on_link)
        task_status.started()
        while True:
            is_missing = await self._missing.wait(self._silence / _CHECKS)
            if is_missing or self._bus.silence(self._heard_at) > self._silence:
                await self._ask()

    def _on_link(self, is_up: bool) -> None:
        if is_up:  # hints may have been missed
            self._missing.set()

    def _on_hint(self, message: Incoming) -> None:
        try:
            hint = Authority.model_validate_json(message.body)
        except ValidationError:
            self._log.warning("malformed hint", subject=message.subject)
            return
        self._heard_at = time.monotonic()
        self._apply(hint)
        # After a stop of this process, its buffers hold old hints. A proven link has none of them.
        if hint.keys is not None and self._bus.proven_since is not None:
            self._admission.end_keys(frozenset(hint.keys), hint.keys_age)
            if hint.number == self._admission.number:
                self._admission.confirm_keys(hint.keys)

    def _apply(self, hint: Authority) -> None:
        applied = self._admission.number
        if hint.number <= applied:
            return
        newer = [each for each in hint.revocations if applied < each.number <= hint.number]
        if len(newer) == hint.number - applied:
            self._has_begun = True
            self._admission.apply(newer, hint.number)
        else:
            self._missing.set()

    async def _ask(self) -> None:
        """Fetch what is missing, page by page; after a failure, the next hint or check asks again."""
        try:
            if not self._has_begun:
                # This edge has no verdict from before its start, so older revocations do not matter.
                newest = await self._client.changes(_LAST)
                self._admission.begin(newest.number)
                self._has_begun = True
            while True:
                changes = await self._client.changes(self._admission.number)
                self._admission.apply(changes.revocations, changes.number)
                if changes.complete:
                    break
        except BusError as error:
            self._log.debug("revocations not fetched", error=str(error))
            return
        self._heard_at = time.monotonic()
