"""How long a stream may go on, and how it gets more time from authorization."""

from __future__ import annotations

import math
import time
from typing import Final, NamedTuple

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.policy import Judging, PolicyClient, StreamAsked
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.catalog.snapshot_cache import Snapshots
from mcpfleet.edge.identity.admission import Admission
from mcpfleet.edge.identity.verdict_cache import Verdict
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.transport.request_head import Credential
from mcpfleet.wire.errors import NotAnswered, Rejection, not_answered
from mcpfleet.wire.filter import Filter

_TRIES: Final = 3
"""Questions in a row whose answers may be older than the newest change of policy."""


class Judged(NamedTuple):
    """The answer of the operator's policy about a stream."""

    judging: Judging
    allowed: Filter
    seconds: float
    """Seconds from the asking for which that holds."""
    asked_at: float
    """Monotonic seconds."""
    number: int
    """The newest change of policy that the answer includes."""


class StreamAuthority:
    """Asks authorization about streams: of their callers' credentials and groups, and what the policy says."""

    def __init__(self, admission: Admission, snapshots: Snapshots, policy: PolicyClient) -> None:
        self.admission = admission
        self.snapshots = snapshots
        self._policy = policy

    async def judge(self, endpoint: str, principal: Principal, judging: Judging, wanted: Filter) -> Judged | None:
        """Ask the operator's policy about a stream; return None where it denies all of it.

        Raises:
            NotAnswered: it gave no answer in time that is as new as the newest change of policy.
        """
        asked = StreamAsked(
            endpoint=endpoint,
            principal=principal,
            judging=judging,
            lists=tuple(sorted(wanted.lists)),
            uris=wanted.uris,
            tasks=wanted.task_ids,
            own=tuple((each.field, each.keys) for each in wanted.own),
        )
        for _ in range(_TRIES):
            asked_at = time.monotonic()
            try:
                answer = await self._policy.judge(asked)
            except BusError as error:
                raise not_answered("the policy") from error
            if answer.outcome == "undecided":
                break
            if answer.number >= self.admission.policy_number:
                if answer.outcome == "denied":
                    return None
                allowed = Filter(
                    frozenset(kind for kind in wanted.lists if kind in answer.lists),
                    tuple(uri for uri in wanted.uris if uri in set(answer.uris)),
                    tuple(task for task in wanted.task_ids if task in set(answer.tasks)),
                    wanted.only_own(dict(answer.own)),
                )
                return Judged(judging, allowed, answer.seconds, asked_at, answer.number)
        raise not_answered("the policy")


class RenewalUnanswered(Exception):
    """Raised when authorization did not answer a renewal in time; it is tried again until the lease ends (K19)."""


class StreamLease:
    """A stream's right to go on. This one has no end: its caller needs no credential (S1)."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        """The stream's caller, by the newest answer."""
        self.expires = math.inf
        """Monotonic seconds until which the lease holds."""
        self.key: str | None = None
        """Names the key that makes the credential valid, where authorization can name it."""
        self.asked_at = -math.inf
        """When authorization was asked last (monotonic seconds)."""
        self.allowed: Filter | None = None
        """The part of the stream's filter that the operator's policy allows now; None where it judges no stream."""

    async def renew(self) -> bool:
        """Ask authorization whether the stream may go on, and extend the lease; return False for a refusal.

        Raises:
            RenewalUnanswered: authorization did not answer in time.
        """
        return True


class VerdictLease(StreamLease):
    """The lease of a caller with a credential, which the stream keeps for its life and shows to authorization alone."""

    def __init__(
        self,
        authority: StreamAuthority,
        endpoint: str,
        credential: Credential | None,
        verdict: Verdict,
        *,
        longest: float,
        judged: Judged | None = None,
    ) -> None:
        """Begin by a verdict.

        Args:
            authority: gives newer verdicts.
            endpoint: its name.
            credential: the caller's.
            verdict: the newest one on this credential.
            longest: seconds that the lease holds after authorization was asked, at most (N6).
            judged: what the operator's policy has said of the stream; None where it judges none.
        """
        super().__init__(verdict.principal)
        self._authority = authority
        self._judged = judged
        self._endpoint = endpoint
        self._credential = credential
        self._longest = longest
        self._extend(verdict)

    def _extend(self, verdict: Verdict) -> None:
        self.principal = verdict.principal
        self.expires = min(verdict.valid_until, verdict.asked_at + self._longest)
        if self._judged is not None:
            self.allowed = self._judged.allowed
            self.expires = min(self.expires, self._judged.asked_at + self._judged.seconds)
        self.asked_at = verdict.asked_at
        self.key = verdict.admitted.key

    async def renew(self) -> bool:
        """Ask authorization, unless another stream with this credential has asked since."""
        try:
            admission = self._authority.admission
            verdict = await admission.verdict(self._endpoint, self._credential)
            if verdict.asked_at <= self.asked_at:
                verdict = await admission.verdict(self._endpoint, self._credential, fresh=True)
            await self._authority.snapshots.prepare(self._endpoint, verdict.principal)
            if self._judged is not None:
                self._judged = await self._authority.judge(
                    self._endpoint, verdict.principal, self._judged.judging, self._judged.allowed
                )
                if self._judged is None:
                    return False
        except NotAnswered as error:
            raise RenewalUnanswered from error
        except Rejection:
            return False
        self._extend(verdict)
        return True


class StreamLeases:
    """Decides who may have a stream, and for how long."""

    def __init__(self, authority: StreamAuthority, *, longest: float) -> None:
        """Grant leases by verdicts.

        Args:
            authority: gives the verdicts.
            longest: seconds that a lease holds without a new answer of authorization, at most (N6).
        """
        self._authority = authority
        self._admission = authority.admission
        self._longest = longest

    async def judge(self, exchange: Exchange, judging: Judging, wanted: Filter) -> Judged | None:
        """Ask the operator's policy about the whole filter of a stream (X49); None where it judges no such streams.

        A stream that it denies is allowed an empty filter. For GET streams of 2025, `wanted` has the families as its
        lists, with `updates` among them.

        Raises:
            NotAnswered: the policy gave no answer in time.
        """
        verdict = await self._admission.verdict(exchange.endpoint, exchange.credential)
        if judging not in verdict.admitted.judges:
            return None
        judged = await self._authority.judge(exchange.endpoint, verdict.principal, judging, wanted)
        return judged or Judged(judging, Filter(), 0.0, time.monotonic(), self._admission.policy_number)

    def newest_policy(self) -> int:
        """Return the number of the newest change of policy that this edge has heard of."""
        return self._admission.policy_number

    def check_scopes(self, exchange: Exchange, honoured: Filter) -> None:
        """Check that the caller has the scopes to read its URIs, and to hear of own keys (D10). An unknown URI needs
        none.

        Raises:
            Rejection: 403, which names the scopes.
        """
        if not exchange.view.needs_scopes:
            return
        targets = [exchange.view.find_resource(uri) for uri in honoured.uris]
        targets += [exchange.view.filters.get(each.field) for each in honoured.own]
        for target in targets:
            if target is not None and target.listed.definition.scopes:
                self._admission.require(exchange.endpoint, exchange.caller, target.listed.definition.scopes)

    async def grant(
        self, endpoint: str, principal: Principal, credential: Credential | None, judged: Judged | None = None
    ) -> StreamLease:
        """Grant a stream its lease.

        Args:
            endpoint: its name.
            principal: the caller.
            credential: the caller's.
            judged: what the operator's policy has said of the stream.

        Raises:
            Rejection: as `Admission.admit`, and 504 where the policy has changed since it was asked.
        """
        if credential is None and principal.group is None and judged is None:
            return StreamLease(principal)
        verdict = await self._admission.verdict(endpoint, credential)
        await self._authority.snapshots.prepare(endpoint, verdict.principal)
        if judged is not None and judged.number < self._admission.policy_number:
            raise not_answered("the policy")
        return VerdictLease(self._authority, endpoint, credential, verdict, longest=self._longest, judged=judged)
