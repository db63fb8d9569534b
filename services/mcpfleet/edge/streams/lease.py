"""How long a stream may go on, and how it gets more time from authorization."""

from __future__ import annotations

import math

from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.identity.admission import Admission
from mcpfleet.edge.identity.verdict_cache import Verdict
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.transport.request_head import Credential
from mcpfleet.wire.errors import NotAnswered, Rejection
from mcpfleet.wire.filter import Filter


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

    async def renew(self) -> bool:
        """Ask authorization whether the stream may go on, and extend the lease; return False for a refusal.

        Raises:
            RenewalUnanswered: authorization did not answer in time.
        """
        return True


class VerdictLease(StreamLease):
    """The lease of a caller with a credential, which the stream keeps for its life and shows to authorization alone."""

    def __init__(
        self, admission: Admission, endpoint: str, credential: Credential, verdict: Verdict, *, longest: float
    ) -> None:
        """Begin by a verdict.

        Args:
            admission: gives newer verdicts.
            endpoint: its name.
            credential: the caller's.
            verdict: the newest one on this credential.
            longest: seconds that the lease holds after authorization was asked, at most (N6).
        """
        super().__init__(verdict.principal)
        self._admission = admission
        self._endpoint = endpoint
        self._credential = credential
        self._longest = longest
        self._extend(verdict)

    def _extend(self, verdict: Verdict) -> None:
        self.principal = verdict.principal
        self.expires = min(verdict.valid_until, verdict.asked_at + self._longest)
        self.asked_at = verdict.asked_at
        self.key = verdict.admitted.key

    async def renew(self) -> bool:
        """Ask authorization, unless another stream with this credential has asked since."""
        try:
            verdict = await self._admission.verdict(self._endpoint, self._credential)
            if verdict.asked_at <= self.asked_at:
                verdict = await self._admission.verdict(self._endpoint, self._credential, fresh=True)
        except NotAnswered as error:
            raise RenewalUnanswered from error
        except Rejection:
            return False
        self._extend(verdict)
        return True


class StreamLeases:
    """Decides who may have a stream, and for how long."""

    def __init__(self, admission: Admission, *, longest: float) -> None:
        """Grant leases by verdicts.

        Args:
            admission: gives the verdicts.
            longest: seconds that a lease holds without a new answer of authorization, at most (N6).
        """
        self._admission = admission
        self._longest = longest

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

    async def grant(self, endpoint: str, principal: Principal, credential: Credential | None) -> StreamLease:
        """Grant a stream its lease; raises as `Admission.admit`."""
        if credential is None:
            return StreamLease(principal)
        verdict = await self._admission.verdict(endpoint, credential)
        return VerdictLease(self._admission, endpoint, credential, verdict, longest=self._longest)
