"""Admits callers by authorization's verdicts. Each is kept for its time, and asked for once for all that wait."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn, TypeAlias

import anyio
from anyio.abc import TaskStatus
from pydantic import SecretStr
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.authorization import (
    Admit,
    Admitted,
    AuthorizationClient,
    Revocation,
    names_of,
)
from mcpfleet.contracts.grants import Holder
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.edge.identity.metadata import Challenges, ResourceMetadata
from mcpfleet.edge.identity.verdict_cache import CacheKey, KeyStatus, Verdict, VerdictCache
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.http_exchange import HttpExchange
from mcpfleet.edge.transport.request_head import Credential, NotBearer, read_credential
from mcpfleet.process.task_owner import TaskOwner
from mcpfleet.telemetry.instruments import AdmissionInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.wire.errors import Rejection, forbidden, not_answered, unauthorized

_TRIES: Final = 3
"""Questions in a row whose answers may be older than the newest revocation."""
_DENIALS: Final = 10
"""Denials get a tenth of the cache, so invented tokens cannot evict valid ones."""
_RETRY: Final = 20
"""A failed renewal is tried again after this part of the verdict's life."""
_SETTLES: Final = 30.0
"""Seconds for which verdicts by an ended key are searched again; none is on its way for longer."""
_RENEWED_BETWEEN: Final = (0.5, 0.9)
"""The parts of a long verdict's life between which it is renewed, so that verdicts of one moment spread out."""

MatchesPrincipal: TypeAlias = Callable[[Principal], bool]
"""Returns whether the rights of a principal may have ended."""
MatchesKey: TypeAlias = Callable[[str | None, float], bool]
"""Returns whether an answer of this key, asked for at this time, may have ended with the key."""


@dataclass(slots=True, eq=False)
class _Question:
    """A question that is on its way, and its outcome; no outcome where its asker left."""

    done: anyio.Event = field(default_factory=anyio.Event)
    outcome: Callable[[], Verdict] | None = None


def _raise(rejection: Rejection) -> NoReturn:
    raise rejection


class Admission:
    """Admits callers, and keeps a bounded number of verdicts; the least recently used one goes first.

    From half of its life on, a verdict in use is renewed in the background. So a short absence of authorization costs
    callers nothing. No verdict is used beyond its life. A verdict by a key lives long while authorization confirms the
    key again and again, and ends soon after the last confirmation.
    """

    def __init__(
        self,
        client: AuthorizationClient,
        settings: EdgeSettings,
        metadata: ResourceMetadata | None = None,
        *,
        clock: Callable[[], float] | None = None,
        instruments: AdmissionInstruments | None = None,
        log: FilteringBoundLogger | None = None,
    ) -> None:
        """Begin without verdicts.

        Args:
            client: authorization's.
            settings: the edge's.
            metadata: tells clients how to get a token; None where nobody needs one.
            clock: returns monotonic seconds; `time.monotonic` by default.
            instruments: count the verdicts.
            log: names settings of edge and authorization that contradict each other.
        """
        self._log = log
        self._admissions = (instruments or AdmissionInstruments(Metrics())).admissions
        self._client = client
        self._metadata = metadata
        self._challenges = Challenges(metadata) if metadata is not None else None
        self._admitted = VerdictCache(settings.admission_entries)
        self._denied = VerdictCache(max(1, settings.admission_entries // _DENIALS))
        self._clock = clock or time.monotonic
        self._silence = settings.authority_silence
        # Where authorization only computes, one question carries the requests of a moment together.
        together = settings.authorization in ("jwt", "static")
        self._ask_for_request = client.admit_request if together else client.admit
        self._keys: dict[str, KeyStatus] = {}
        """By the names of the keys that verdicts rest on."""
        self._questions: dict[CacheKey, _Question] = {}
        self._owner = TaskOwner()
        self._revocation_listeners: list[Callable[[MatchesPrincipal], None]] = []
        self._key_listeners: list[Callable[[MatchesKey], None]] = []
        self._policy_listeners: list[Callable[[int], None]] = []
        self.number = 0
        """The newest revocation that was applied. An answer with an older number is not used."""
        self._policy = 0
        """The newest change of policy among them."""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Renew verdicts in use, until cancelled."""
        await self._owner.run(task_status=task_status)

    # -- before the body is read --------------------------------------------------------------------------------------

    def read(self, endpoint: str, exchange: HttpExchange) -> Credential | None:
        """Read the credential from a request's head (group 4b); return None where callers need none.

        Raises:
            Rejection: 401 where it is missing or malformed; 400 where a token is in the URL, which logs keep (M61).
        """
        if self._challenges is None:
            return None
        if b"access_token=" in exchange.query:
            raise self._challenges.malformed(endpoint)
        try:
            credential = read_credential(exchange.headers)
        except NotBearer:
            raise self._challenges.refused(endpoint, "the token is malformed") from None
        if credential is None:
            raise self._challenges.missing(endpoint)
        return credential

    # -- once the request is known ------------------------------------------------------------------------------------

    async def admit(self, endpoint: str, credential: Credential | None = None) -> Principal:
        """Return the caller's principal.

        Raises:
            Rejection: 401 where authorization denied it, 504 where it did not answer in time.
        """
        key = (endpoint, credential.digest if credential is not None else b"")
        verdict = self._admitted.get(key) or self._denied.get(key)
        now = self._clock()
        if verdict is None or not verdict.holds(now):
            self._admissions.add(1, "asked")
            verdict = await self._ask_once(key, credential)
        else:
            self._admissions.add(1, "kept")
            if verdict.renewed_from <= now:
                self._renew(key, credential, verdict, now)
        return self._principal(endpoint, verdict)

    def holder(self, endpoint: str, principal: Principal, credential: Credential | None = None) -> Holder:
        """Return an admitted caller as subscriptions knows the holders of grants: with no token (X56)."""
        verdict = self._admitted.get((endpoint, credential.digest if credential is not None else b""))
        good_for = None if verdict is None else verdict.admitted.good_for
        left = None if verdict is None or good_for is None else max(0.0, verdict.valid_until - self._clock())
        number = self.number if verdict is None else verdict.admitted.number
        return Holder(endpoint=endpoint, principal=principal, number=number, credential_lasts=left)

    async def verdict(self, endpoint: str, credential: Credential | None = None, *, fresh: bool = False) -> Verdict:
        """Return a verdict for a stream, which lasts longer than a request; raises as `admit`.

        It is no older than the newest change of policy, as the credential may be valid for long. Nor does it hold by
        its key alone: a stream begins with a fresh answer.

        Args:
            endpoint: its name.
            credential: the caller's.
            fresh: ask authorization whatever is kept.
        """
        key = (endpoint, credential.digest if credential is not None else b"")
        verdict = None if fresh else self._admitted.get(key)
        now = self._clock()
        if verdict is None or now >= min(verdict.expires, verdict.sure_until) or verdict.admitted.number < self._policy:
            verdict = await self._ask_once(key, credential, together=True)
        self._principal(endpoint, verdict)
        return verdict

    def _principal(self, endpoint: str, verdict: Verdict) -> Principal:
        principal = verdict.admitted.principal
        if principal is None:
            if self._challenges is None:
                raise unauthorized()
            raise self._challenges.refused(endpoint, verdict.admitted.reason or "")
        return principal

    def require(self, endpoint: str, principal: Principal, needed: tuple[str, ...]) -> None:
        """Check that a principal has all scopes of an operation.

        Raises:
            Rejection: 403, which names them all (M63).
        """
        if needed and not principal.holds(needed):
            raise self.insufficient_scope(endpoint, needed)

    def insufficient_scope(self, endpoint: str, needed: tuple[str, ...]) -> Rejection:
        """Return the answer to a caller who lacks a scope: 403, which names them all (M63)."""
        return self._challenges.insufficient_scope(endpoint, needed) if self._challenges is not None else forbidden()

    # -- revocations --------------------------------------------------------------------------------------------------

    @property
    def policy_number(self) -> int:
        """The number of the newest change of policy that was applied."""
        return self._policy

    def on_policy_changed(self, listener: Callable[[int], None]) -> None:
        """Call a listener with the number of each change of policy, before those of `on_revoked`."""
        self._policy_listeners.append(listener)

    def on_revoked(self, listener: Callable[[MatchesPrincipal], None]) -> None:
        """Call a listener when rights end, for holders that keep them longer than a request."""
        self._revocation_listeners.append(listener)

    def apply(self, revocations: Iterable[Revocation], number: int) -> None:
        """Drop the verdicts that revocations match; later answers know of the revocations.

        A change of policy matches all verdicts. They end within half of a life, each at a random moment, so that they
        are not all asked for at once.

        Args:
            revocations: all that are newer than those applied before, as far as they are kept.
            number: the newest one's.
        """
        if number <= self.number:
            return
        self.number = number
        listed = list(revocations)
        revoked = {(each.kind, each.key) for each in listed}
        policy = max((each.number for each in listed if each.kind == "policy"), default=0)
        self._admitted.drop(lambda verdict: not revoked.isdisjoint(verdict.names))
        self._denied.clear()
        if policy:
            self._policy = policy
            # A group may be another one now: its callers are asked about before they are served again (X52).
            self._admitted.drop(lambda verdict: verdict.principal.group is not None)
            for hear in self._policy_listeners:
                hear(policy)
            now = self._clock()
            for verdict in self._admitted.values():
                if verdict.admitted.number < policy:
                    verdict.renewed_from = now
                    verdict.expires = min(verdict.expires, now + verdict.admitted.lasts * random.uniform(0, 0.5))  # noqa: S311  # no secret

        for listener in self._revocation_listeners:
            listener(lambda principal: bool(policy) or not revoked.isdisjoint(names_of(principal)))

    def begin(self, number: int) -> None:
        """Start at a number whose revocations are unknown, and drop the verdicts that are older."""
        self.number = max(self.number, number)
        self._admitted.drop(lambda verdict: verdict.admitted.number < self.number)
        self._denied.clear()

    # -- keys ---------------------------------------------------------------------------------------------------------

    def on_keys_ended(self, listener: Callable[[MatchesKey], None]) -> None:
        """Call a listener when keys end, for holders of rights that last longer than a request."""
        self._key_listeners.append(listener)

    def confirm_keys(self, keys: Iterable[str]) -> None:
        """Extend the verdicts by these keys: authorization confirms the keys, and has sent all its revocations."""
        now = self._clock()
        for key in keys:
            if (status := self._keys.get(key)) is not None:
                status.confirmed_at = now

    def end_keys(self, keys: Collection[str], age: float) -> None:
        """Drop the verdicts by keys that are not valid any more.

        A list of keys that was fetched before a verdict was asked for does not end the verdict: it is older.

        Args:
            keys: all valid keys.
            age: seconds since they were fetched.
        """
        now = self._clock()
        fetched = now - age
        ended = {key for key, status in self._keys.items() if key not in keys and status.oldest < fetched}
        if not ended:
            return
        # A verdict may still be on its way, to a stream that begins for example: the next list finds it.
        settled = min(fetched, now - _SETTLES)
        for key in ended:
            status = self._keys[key]
            status.oldest = max(status.oldest, settled)
            if status.newest < settled:
                del self._keys[key]

        def is_over(key: str | None, asked_at: float) -> bool:
            return key in ended and asked_at < fetched

        self._admitted.drop(lambda verdict: is_over(verdict.admitted.key, verdict.asked_at))
        for listener in self._key_listeners:
            listener(is_over)

    # -- asking -------------------------------------------------------------------------------------------------------

    def _renew(self, key: CacheKey, credential: Credential | None, verdict: Verdict, now: float) -> None:
        if key in self._questions or not self._owner.is_running:
            return
        verdict.renewed_from = now + (verdict.admitted.lasts_heard or verdict.admitted.lasts) / _RETRY
        self._owner.start(self._renew_now, key, credential)

    async def _renew_now(self, key: CacheKey, credential: Credential | None) -> None:
        try:
            await self._ask_once(key, credential)
        except Rejection:
            return  # the verdict is used to the end of its life, and later requests renew it

    async def _ask_once(self, key: CacheKey, credential: Credential | None, *, together: bool = False) -> Verdict:
        """Let one of those who wait ask, and the others share its outcome; where it has left, the next one asks."""
        while (question := self._questions.get(key)) is not None:
            await question.done.wait()
            # Something may have been revoked between the answer and our turn.
            if question.outcome is not None and (verdict := question.outcome()).admitted.number >= self.number:
                return verdict
        question = self._questions[key] = _Question()
        try:
            verdict = await self._ask(key, credential, together=together)
        except Rejection as rejection:
            question.outcome = partial(_raise, rejection)
            raise
        else:
            question.outcome = lambda: verdict
            return verdict
        finally:
            del self._questions[key]
            question.done.set()

    async def _ask(self, key: CacheKey, credential: Credential | None, *, together: bool) -> Verdict:
        """Ask until the answer is no older than the newest revocation that was applied here."""
        endpoint = key[0]
        request = Admit(
            endpoint=endpoint,
            credential=SecretStr(credential.reveal()) if credential is not None else None,
            resource=self._metadata.resources[endpoint] if self._metadata is not None else None,
        )
        admit = self._client.admit_together if together else self._ask_for_request
        for _ in range(_TRIES):
            asked_at = self._clock()
            try:
                admitted = await admit(request)
            except BusError as error:
                raise not_answered("authorization") from error
            if admitted.number >= self.number:
                return self._keep(key, admitted, asked_at)
        raise not_answered("authorization")

    def _report(self, why: str) -> None:
        """Log why nobody is admitted."""
        if self._log is not None:
            self._log.error("no caller admitted", why=why, setting="MCPFLEET_AUTHORIZATION")

    def _keep(self, key: CacheKey, admitted: Admitted, asked_at: float) -> Verdict:
        expires = asked_at + admitted.lasts
        principal = admitted.principal
        if principal is not None and principal.is_anonymous and self._challenges is not None:
            # The two processes have different settings, so nobody is admitted.
            self._report("authorization asks for no credentials, and this edge does")
            admitted, principal = admitted.model_copy(update={"principal": None}), None
        elif principal is None and self._challenges is None:
            self._report("authorization asks for credentials, and this edge does not")
        if principal is None:
            self._admitted.forget(key)
            return self._denied.put(key, Verdict(admitted, expires))
        if principal.is_anonymous and principal.group is None:  # one object for all, so that a call need not compare
            admitted = admitted.model_copy(update={"principal": ANONYMOUS})
        self._denied.forget(key)
        verdict = Verdict(admitted, expires, asked_at + admitted.lasts / 2, names_of(principal), asked_at)
        self._extend(verdict)
        return self._admitted.put(key, verdict)

    def _extend(self, verdict: Verdict) -> None:
        """Extend a verdict for as long as its key is confirmed, where authorization allows that."""
        admitted, asked_at = verdict.admitted, verdict.asked_at
        if admitted.key is None:
            return
        status = self._keys.setdefault(admitted.key, KeyStatus())
        status.oldest, status.newest = min(status.oldest, asked_at), max(status.newest, asked_at)
        if admitted.lasts_heard is None or admitted.lasts_heard <= admitted.lasts:
            return
        verdict.sure_until = verdict.expires
        verdict.expires = asked_at + admitted.lasts_heard
        verdict.renewed_from = asked_at + admitted.lasts_heard * random.uniform(*_RENEWED_BETWEEN)  # noqa: S311  # no secret
        verdict.key_status, verdict.confirmed_for = status, max(self._silence, admitted.lasts)
