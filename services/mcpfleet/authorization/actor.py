"""Authorization's handlers: they admit callers, revoke permissions, and take from limits."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

from mcpfleet.authorization.policy import OperatorPolicy, PolicyFailed, judge_all, renew_all, report_failure
from mcpfleet.authorization.repository import RevocationRepository
from mcpfleet.authorization.revocations import KnownRevocations
from mcpfleet.authorization.rules import admit, admit_anonymous, expanded
from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.authorization.verifier import CredentialRefused, CredentialUnchecked, Reason, Verified, Verifier
from mcpfleet.authorization.windows import take, take_all
from mcpfleet.bus.actor import Actor, RpcContext
from mcpfleet.bus.errors import Failed, Fault
from mcpfleet.contracts.authorization import (
    ADMIT,
    ADMIT_ALL,
    CHANGES,
    LIMITS,
    LIMITS_ALL,
    REVOKE,
    Admit,
    AdmitAll,
    Admitted,
    AdmittedAll,
    Changes,
    ChangesWanted,
    Revoke,
    Revoked,
    TakeFromLimit,
    Taken,
    TakeTokens,
    TokensTaken,
)
from mcpfleet.contracts.grants import RENEW, GrantsRenewed, Renewal, RenewGrants
from mcpfleet.contracts.policy import JUDGE, VISIBLE, StreamsAsked, StreamsJudged, Visible, VisibleWanted
from mcpfleet.process.service import Process
from mcpfleet.store.engine import Store
from mcpfleet.telemetry.instruments import AuthorizationInstruments

GROUP: Final = "authorization"
_GRANT_LASTS: Final = 86_400.0
"""Seconds that a grant of a session goes on as far as authorization is concerned; subscriptions asks far sooner."""


class AuthorizationActor:
    """Answers edges and the operator."""

    def __init__(
        self,
        process: Process[AuthorizationSettings],
        store: Store,
        repository: RevocationRepository,
        revocations: KnownRevocations,
        *,
        verifier: Verifier | None,
        policy: OperatorPolicy | None = None,
        instruments: AuthorizationInstruments,
    ) -> None:
        self._settings = process.settings
        self._verifier = verifier
        self._policy = policy
        self._revocations = revocations
        self._repository = repository
        self._store = store
        self._instruments = instruments
        self._log = process.log

    async def register(self, actor: Actor) -> None:
        """Answer from now on."""
        await actor.answer(ADMIT, self.admit, group=GROUP)
        await actor.answer(ADMIT_ALL, self.admit_all, group=GROUP)
        await actor.answer(CHANGES, self.changes, group=GROUP)
        await actor.answer(LIMITS, self.limits, group=GROUP)
        await actor.answer(LIMITS_ALL, self.limits_all, group=GROUP)
        await actor.answer(REVOKE, self.revoke, group=GROUP)
        await actor.answer(RENEW, self.renew, group=GROUP)
        if self._policy is not None:
            await actor.answer(VISIBLE, self.visible, group=GROUP)
            await actor.answer(JUDGE, self.judge, group=GROUP)

    async def admit(self, question: Admit, context: RpcContext) -> Admitted:  # noqa: ARG002
        """Say who the caller is, and for how long an edge may use that verdict.

        The revocations are read after the credential was checked. So none is missed that was made before the check
        ended, however long it took.
        """
        checked = await self._check(question)
        if not isinstance(checked, CredentialRefused):
            await self._revocations.learn()
        return self._verdict(question, checked)

    async def admit_all(self, question: AdmitAll, context: RpcContext) -> AdmittedAll:  # noqa: ARG002
        """Admit many callers. The verdict is None for one that takes too long, or cannot be checked now."""
        checked: dict[int, Verified | CredentialRefused | None] = {}

        async def check(place: int, caller: Admit) -> None:
            with suppress(
                Exception
            ):  # the edge asks again for it alone, and hears the error; the others are answered now
                checked[place] = await self._check(caller)

        with suppress(TimeoutError):
            async with asyncio.timeout(question.within), asyncio.TaskGroup() as tasks:
                for place, caller in enumerate(question.callers):
                    tasks.create_task(check(place, caller))
        await self._revocations.learn()
        callers = enumerate(question.callers)
        return AdmittedAll(
            verdicts=tuple(
                self._verdict_of_many(caller, checked[place]) if place in checked else None for place, caller in callers
            )
        )

    def _verdict_of_many(self, caller: Admit, checked: Verified | CredentialRefused | None) -> Admitted | None:
        try:
            return self._verdict(caller, checked)
        except Failed:  # the edge asks for it alone, and hears the error
            return None

    async def _check(self, question: Admit) -> Verified | CredentialRefused | None:
        """Check a credential; None where the mode needs none.

        Raises:
            Failed: it cannot be checked now.
        """
        if self._verifier is None:
            return None
        if question.credential is None or question.resource is None:
            return CredentialRefused("no credential was presented, or the edge named no resource", Reason.MISSING)
        token = question.credential.get_secret_value()
        try:
            return await self._verifier.verify(token, question.endpoint, question.resource.rstrip("/"))
        except CredentialRefused as refused:
            return refused
        except CredentialUnchecked as error:
            self._log.warning("credential not checked", endpoint=question.endpoint, reason=str(error))
            self._instruments.questions.add(1, "unknown")
            raise Failed(Fault.UNAVAILABLE, "the credential cannot be checked now") from None

    def _verdict(self, question: Admit, checked: Verified | CredentialRefused | None) -> Admitted:
        """Decide by the revocations that are known now."""
        number = self._revocations.number
        try:
            if isinstance(checked, CredentialRefused):
                raise checked
            admitted = self._admitted(checked)
        except CredentialRefused as refused:
            self._log.info("credential refused", endpoint=question.endpoint, reason=str(refused))
            self._instruments.refused.add(1, refused.reason)
            self._instruments.questions.add(1, "refused")
            return Admitted(lasts=self._settings.refusal_lasts, reason=str(refused), number=number)
        self._instruments.questions.add(1, "admitted")
        return self._grouped(admitted.model_copy(update={"number": number}))

    def _grouped(self, admitted: Admitted) -> Admitted:
        """Add what the operator's policy says of an admitted caller (X48).

        Raises:
            Failed: it said nothing.
        """
        if self._policy is None or admitted.principal is None:
            return admitted
        try:
            group = self._policy.group(admitted.principal)
        except PolicyFailed as error:
            raise self._policy_failed(error) from None
        principal = admitted.principal.model_copy(update={"group": group})
        return admitted.model_copy(update={"principal": principal, "judges": self._policy.judges})

    def _policy_failed(self, error: PolicyFailed) -> Failed:
        report_failure(self._log, error)
        return Failed(Fault.UNAVAILABLE, "the operator's policy gave no answer")

    async def visible(self, question: VisibleWanted, context: RpcContext) -> Visible:  # noqa: ARG002
        """Return which items a group sees."""
        assert self._policy is not None
        await self._revocations.learn()
        number = self._revocations.number
        try:
            places = await self._policy.visible(question, self._revocations.policy)
        except PolicyFailed as error:
            raise self._policy_failed(error) from None
        if places is None:
            return Visible(hides_nothing=True, number=number)
        return Visible(places=places, number=number)

    async def judge(self, question: StreamsAsked, context: RpcContext) -> StreamsJudged:  # noqa: ARG002
        """Return who may have which stream."""
        assert self._policy is not None
        await self._revocations.learn()
        number = self._revocations.number
        judged = await judge_all(self._policy, question.streams, self._log)
        return StreamsJudged(streams=tuple(each.model_copy(update={"number": number}) for each in judged))

    def _admitted(self, verified: Verified | None) -> Admitted:
        if verified is None:
            return admit_anonymous(self._settings.admission_lasts)
        admitted = admit(
            verified,
            at=time.time(),
            lasts=self._settings.admission_lasts,
            lasts_heard=self._settings.admission_lasts_heard,
            revoked=self._revocations.revoked_at(verified.principal),
        )
        scopes = expanded(verified.principal.scopes, self._settings.scope_implies)
        return admitted.model_copy(update={"principal": verified.principal.model_copy(update={"scopes": scopes})})

    async def changes(self, question: ChangesWanted, context: RpcContext) -> Changes:  # noqa: ARG002
        """Return the revocations after a number."""
        page = await self._repository.after(question.after)
        newest = page.number if page.complete else page.kept[-1].revocation.number
        return Changes(number=newest, revocations=tuple(kept.revocation for kept in page.kept), complete=page.complete)

    async def revoke(self, question: Revoke, context: RpcContext) -> Revoked:  # noqa: ARG002
        """End the permission that belongs to a name. It is stored when the answer arrives, and edges hear a hint."""
        if (question.kind == "policy") != (question.name == ""):
            raise Failed(Fault.CONTRACT, "a subject, client or tenant needs a name, and a policy takes none")
        number = await self._repository.revoke(question)
        self._log.info("revoked", kind=question.kind, number=number)
        await self._revocations.refresh()
        self._revocations.tell()
        return Revoked(number=number)

    async def renew(self, question: RenewGrants, context: RpcContext) -> GrantsRenewed:  # noqa: ARG002
        """Say which holders of grants may go on: those whom no later revocation concerns, by the policy too (X57)."""
        await self._revocations.learn()
        known, number = self._revocations, self._revocations.number
        renewals = [
            Renewal(allowed=not known.revoked_since(held.holder.principal, held.holder.number), lasts=_GRANT_LASTS)
            for held in question.holders
        ]
        if self._policy is not None:
            asked = [place for place, renewal in enumerate(renewals) if renewal.allowed]
            judged = await renew_all(self._policy, [question.holders[place] for place in asked], self._log)
            for place, renewal in zip(asked, judged, strict=True):
                renewals[place] = renewal
        return GrantsRenewed(renewals=tuple(renewals), number=number)

    async def limits(self, question: TakeFromLimit, context: RpcContext) -> Taken:  # noqa: ARG002
        """Take from a limit's window."""
        return await take(self._store, question)

    async def limits_all(self, question: TakeTokens, context: RpcContext) -> TokensTaken:  # noqa: ARG002
        """Take from the windows of many limits."""
        return await take_all(self._store, question)
