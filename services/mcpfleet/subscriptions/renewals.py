"""Renews grants by their principals, whether or not their sessions have a stream (X57)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio
from anyio.abc import TaskStatus
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.grants import GrantsClient, HeldUris, Renewal, RenewGrants
from mcpfleet.store.errors import StoreError
from mcpfleet.subscriptions.grants import AT_ONCE, DueGrant, GrantRepository
from mcpfleet.subscriptions.notifications import SessionNotifications
from mcpfleet.subscriptions.settings import SubscriptionsSettings

_PAUSES: Final = (0.05, 0.1)
"""Seconds between the three tries of a round (X57)."""
_TIMEOUT: Final = 5.0
"""Seconds that one try may take (N7)."""
_ROUNDS: Final = 20
"""Looks for grants to renew, within the time that a lease lasts."""
_LONGEST: Final = 2.0
"""Seconds between two looks, at most."""


class GrantRenewals:
    """Renews each lease once half of it is over. A denial, or the end of its total time, ends the session.

    Where authorization does not answer, the grant is fenced: nothing is sent for it before the next round succeeds.
    """

    def __init__(
        self,
        grants: GrantRepository,
        client: GrantsClient,
        notifications: SessionNotifications,
        settings: SubscriptionsSettings,
        *,
        log: FilteringBoundLogger,
    ) -> None:
        self._grants = grants
        self._client = client
        self._notifications = notifications
        self._pause = min(_LONGEST, settings.grant_lasts / _ROUNDS)
        self._log = log

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Renew until cancelled. A store that is away is asked again; leases end meanwhile by themselves."""
        task_status.started()
        while True:
            try:
                count = await self.renew_due()
            except StoreError as error:
                count = 0
                self._log.debug("grants not renewed", error=str(error))
            if count < AT_ONCE:
                await anyio.sleep(self._pause)

    async def renew_due(self) -> int:
        """Renew the grants that are due, as one round; return their number."""
        due = await self._grants.due()
        over = [grant for grant in due if grant.is_over]
        for grant in over:
            await self._retire(grant, "it is over")
        asked = [grant for grant in due if not grant.is_over]
        answers = await self._ask(asked) if asked else ()
        other: set[str] = set()
        for place, grant in enumerate(asked):
            answer = answers[place] if place < len(answers) else None
            if answer is not None and not answer.allowed:
                await self._retire(grant, "it was denied")
                continue
            written = self._grants.fence(grant) if answer is None else self._grants.extend(grant, answer.lasts)
            if await written and grant.has_stream:
                other.add(grant.session)
        self._notifications.all_changed(other)
        return len(due)

    async def _ask(self, due: Sequence[DueGrant]) -> Sequence[Renewal | None]:
        """Ask authorization about all of them together, three times at most; None for one without an answer."""
        question = RenewGrants(holders=tuple(HeldUris(holder=each.holder, uris=(each.uri,)) for each in due))
        for pause in (*_PAUSES, None):
            try:
                with anyio.fail_after(_TIMEOUT):
                    return await self._client.renew(question)
            except (BusError, TimeoutError) as error:
                self._log.debug("renewal not answered", grants=len(due), error=str(error))
            if pause is not None:
                await anyio.sleep(pause)
        self._log.warning("grants fenced", grants=len(due), why="authorization does not answer")
        return ()

    async def _retire(self, grant: DueGrant, why: str) -> None:
        if await self._grants.retire(grant):
            self._log.info("session retired", why=why)
            self._notifications.ended([grant.session], "retired")
