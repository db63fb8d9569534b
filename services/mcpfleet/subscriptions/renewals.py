"""Renews grants by their principals, whether or not their sessions have a stream (X57)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

import anyio
from anyio.abc import TaskStatus
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.authorization import AUTHORITY_SUBJECT, Authority
from mcpfleet.contracts.grants import GrantsClient, GrantsRenewed, HeldUris, RenewGrants
from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.store.errors import StoreError
from mcpfleet.subscriptions.grants import AT_ONCE, DueGrant, GrantRepository
from mcpfleet.subscriptions.notifications import SessionNotifications
from mcpfleet.subscriptions.settings import SubscriptionsSettings

_PAUSES: Final = (0.05, 0.1)
"""Seconds between the three tries of a round (X57)."""
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
        bus: Bus,
        notifications: SessionNotifications,
        settings: SubscriptionsSettings,
        *,
        log: FilteringBoundLogger,
    ) -> None:
        self._grants = grants
        self._bus = bus
        self._client = GrantsClient(bus)
        self._notifications = notifications
        self._pause = min(_LONGEST, settings.grant_lasts / _ROUNDS)
        self._log = log
        self._policy = 0
        """The newest change of policy that was heard."""
        self._applied = 0
        """All grants that were decided before this change of policy have been asked about again."""
        self._has_news = AutoResetEvent()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Renew until cancelled. A store that is away is asked again; leases end meanwhile by themselves."""
        await self._bus.subscribe(AUTHORITY_SUBJECT, self._on_hint)
        task_status.started()
        while True:
            try:
                count = await self.renew_due()
            except StoreError as error:
                count = 0
                self._log.debug("grants not renewed", error=str(error))
            if count < AT_ONCE:
                await self._has_news.wait(self._pause)

    def _on_hint(self, message: Incoming) -> None:
        """Hear of a change of policy, after which every grant is asked about again at once (X52)."""
        try:
            hint = Authority.model_validate_json(message.body)
        except ValidationError:
            self._log.warning("malformed hint", subject=message.subject)
            return
        newest = max((each.number for each in hint.revocations if each.kind == "policy"), default=0)
        if newest > self._policy:
            self._policy = newest
            self._has_news.set()

    async def renew_due(self) -> int:
        """Renew the grants that are due, as one round; return their number."""
        policy = self._policy
        due = await self._grants.due(policy if policy > self._applied else 0)
        if not due:
            self._applied = policy
        over = [grant for grant in due if grant.is_over]
        for grant in over:
            await self._retire(grant, "it is over")
        await self._renew([grant for grant in due if not grant.is_over])
        return len(due)

    async def _renew(self, left: Sequence[DueGrant]) -> None:
        """Ask about grants three times at most, and fence those that have no answer."""
        for pause in (0.0, *_PAUSES):
            if not left:
                return
            await anyio.sleep(pause)
            left = await self._write(left, await self._ask(left))
        for grant in left:
            if await self._grants.fence(grant) and grant.has_stream:
                self._notifications.changed(grant.session)
        self._log.warning("grants fenced", grants=len(left), why="authorization does not answer")

    async def _ask(self, due: Sequence[DueGrant]) -> GrantsRenewed:
        """Ask authorization about grants together; return no answers where it gives none in time."""
        question = RenewGrants(holders=tuple(HeldUris(holder=each.holder, uris=(each.uri,)) for each in due))
        try:
            return await self._client.renew(question)
        except BusError as error:
            self._log.debug("renewal not answered", grants=len(due), error=str(error))
            return GrantsRenewed(renewals=())

    async def _write(self, due: Sequence[DueGrant], answers: GrantsRenewed) -> list[DueGrant]:
        """Extend grants or retire their sessions, by the answers; return the grants that have no answer."""
        left: list[DueGrant] = []
        told: set[str] = set()
        for grant, answer in zip_longest(due, answers.renewals[: len(due)]):
            if answer is None or answer.undecided:
                left.append(grant)
            elif not answer.allowed:
                await self._retire(grant, "it was denied")
            elif await self._grants.extend(grant, answer.lasts, answers.number) and grant.has_stream:
                told.add(grant.session)
        self._notifications.all_changed(told)
        return left

    async def _retire(self, grant: DueGrant, why: str) -> None:
        if await self._grants.retire(grant):
            self._log.info("session retired", why=why)
            self._notifications.ended([grant.session], "retired")
