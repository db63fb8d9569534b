"""Who the caller is: authorization's verdicts, kept for their time, asked for once however many wait."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus
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
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.edge.identity.metadata import Challenges, ResourceMetadata
from mcpfleet.edge.identity.verdict_cache import Hearing, Key, Verdict, VerdictCache
from mcpfleet.edge.transport.http_exchange import HttpExchange
from mcpfleet.edge.transport.request_head import Credential, NotBearer, read_credential
from mcpfleet.telemetry.instruments import AdmissionInstruments
from mcpfleet.telemetry.metrics import Metrics
from mcpfleet.views.rights import holds
from mcpfleet.wire.errors import Rejection, forbidden, not_answered, unauthorized

_TRIES: Final = 3
"""Questions whose answers are older than what was revoked since, until nobody can tell in time."""
_REFUSALS: Final = 10
"""Of so many verdicts that are kept one may be a refusal: who invents tokens must not crowd out those that are good."""
_RETRY: Final = 20
"""A verdict that could not be renewed is asked for again after this part of its life."""
_SETTLES: Final = 30.0
"""Seconds for which verdicts by a key that ended are looked for again and again: none is on its way for longer."""
_RENEWED_BETWEEN: Final = (0.5, 0.9)
"""The parts of its life between which a long verdict is renewed: those that began together are spread so."""


@dataclass(frozen=True, slots=True)
class Permit:
    """Who was admitted, for what lasts longer than a request."""

    principal: Principal
    expires: float
    """Until when the credential is good (monotonic seconds): longer than its verdict, which calls go by, is kept."""
    asked: float
    """When it was (monotonic seconds)."""
    key: str | None = None
    """Names what makes the credential good, as far as authorization can name it."""


Concerns: TypeAlias = Callable[[Principal], bool]
"""Whether the permission of a principal may have ended."""
EndedKeys: TypeAlias = Callable[[str | None, float], bool]
"""Whether what goes by a key, and was asked for at a moment, may have ended with the key."""


@dataclass(slots=True, eq=False)
class _Asking:
    """A question that is on its way, and what it ended with; nothing where its asker left."""

    done: anyio.Event = field(default_factory=anyio.Event)
    outcome: Callable[[], Verdict] | None = None


def _raise(rejection: Rejection) -> NoReturn:
    raise rejection


class Admission:
    """Admits callers; at most `entries` verdicts are kept, the least recently used go first.

    A verdict that is in use is renewed in the background from half of its life on. So a short absence of authorization
    costs nobody anything. None is used beyond its life. A verdict lives long while authorization names its key again
    and again, and ends soon after the last time.
    """

    def __init__(
        self,
        client: AuthorizationClient,
        *,
        entries: int,
        access: ResourceMetadata | None = None,
        silence: float = 5.0,
        together: bool = False,
        clock: Callable[[], float] | None = None,
        instruments: AdmissionInstruments | None = None,
        log: FilteringBoundLogger | None = None,
    ) -> None:
        """Admit nobody yet.

        Args:
            client: authorization's.
            entries: verdicts that are kept.
            access: how clients get a token; none where nobody needs one.
            silence: seconds for which authorization's word counts, once it was heard.
            together: ask for requests that come at the same time in one question.
            clock: tells monotonic seconds; `time.monotonic` by default.
            instruments: where verdicts are counted; nowhere that is read, by default.
            log: hears what an operator has to set right; nobody, by default.
        """
        self._log = log
        self._admissions = (instruments or AdmissionInstruments(Metrics())).admissions
        self._client = client
        self._access = access
        self._challenges = Challenges(access) if access is not None else None
        self._good = VerdictCache(entries)
        self._bad = VerdictCache(max(1, entries // _REFUSALS))
        self._clock = clock or time.monotonic
        self._silence = silence
        self._ask_for_request = client.admit_request if together else client.admit
        self._keys: dict[str, Hearing] = {}
        """By the name of a key that some verdict goes by."""
        self._asking: dict[Key, _Asking] = {}
        self._tasks: TaskGroup | None = None
        self._hearers: list[Callable[[Concerns], None]] = []
        self._key_hearers: list[Callable[[EndedKeys], None]] = []
        self.number = 0
        """The newest revocation that was applied: an answer that knows of none so new is not used."""
        self._policy = 0
        """The newest change of policy among them."""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Renew what is in use, until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            await anyio.sleep_forever()

    # -- before the body is read --------------------------------------------------------------------------------------

    def read(self, endpoint: str, exchange: HttpExchange) -> Credential | None:
        """Group 4b: take the credential out of a request's head; where nobody needs one, none is looked at.

        Raises:
            Rejection: 401 where it is missing or none; 400 where a token stands in the URL, which logs keep (M61).
        """
        if self._challenges is None:
            return None
        if b"access_token=" in exchange.query:
            raise self._challenges.malformed(endpoint)
        try:
            credential = read_credential(exchange.headers)
        except NotBearer:
            raise self._challenges.refused(endpoint) from None
        if credential is None:
            raise self._challenges.missing(endpoint)
        return credential

    # -- once the request is known ------------------------------------------------------------------------------------

    async def admit(self, endpoint: str, credential: Credential | None = None) -> Principal:
        """Say who the caller is.

        Raises:
            Rejection: 401 where authorization refused, 504 where it did not answer in time.
        """
        key = (endpoint, credential.digest if credential is not None else b"")
        verdict = self._good.get(key) or self._bad.get(key)
        now = self._clock()
        if verdict is None or not verdict.holds(now):
            self._admissions.add(1, "asked")
            verdict = await self._ask_once(key, credential)
        else:
            self._admissions.add(1, "kept")
            if verdict.renewed_from <= now:
                self._renew(key, credential, verdict, now)
        return self._admitted(endpoint, verdict)

    async def permit(self, endpoint: str, credential: Credential | None = None, *, anew: bool = False) -> Permit:
        """Say who the caller is and for how long, for what lasts longer than a request; raises as `admit`.

        A verdict from before the newest change of policy is not used: its credential may be good for long. Nor is one
        that holds by its key alone: what lasts begins with a fresh answer.

        Args:
            endpoint: by its name.
            credential: the caller's.
            anew: ask, whatever is known.
        """
        key = (endpoint, credential.digest if credential is not None else b"")
        verdict = None if anew else self._good.get(key)
        now = self._clock()
        if verdict is None or now >= min(verdict.expires, verdict.sure_until) or verdict.admitted.number < self._policy:
            verdict = await self._ask_once(key, credential, together=True)
        return Permit(self._admitted(endpoint, verdict), verdict.good_until, verdict.asked, verdict.admitted.key)

    def _admitted(self, endpoint: str, verdict: Verdict) -> Principal:
        principal = verdict.admitted.principal
        if principal is None:
            raise self._challenges.refused(endpoint) if self._challenges is not None else unauthorized()
        return principal

    def require(self, endpoint: str, principal: Principal, needed: tuple[str, ...]) -> None:
        """Check that a principal has all scopes of an operation.

        Raises:
            Rejection: 403, which names them all (M63).
        """
        if needed and not holds(principal, needed):
            raise self._challenges.insufficient_scope(endpoint, needed) if self._challenges is not None else forbidden()

    # -- what was revoked ---------------------------------------------------------------------------------------------

    def on_ended(self, hear: Callable[[Concerns], None]) -> None:
        """Have somebody hear whose permission may have ended, who holds it for longer than a request."""
        self._hearers.append(hear)

    def apply(self, revocations: Iterable[Revocation], number: int) -> None:
        """Forget the verdicts that revocations concern; what is asked from now on knows of them.

        A policy concerns all: they end within half of a life, each at a moment of its own, lest all be asked for at
        once.

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
        self._good.drop(lambda verdict: not revoked.isdisjoint(verdict.names))
        self._bad.clear()
        if policy:
            self._policy = policy
            now = self._clock()
            for verdict in self._good.values():
                if verdict.admitted.number < policy:
                    verdict.renewed_from = now
                    verdict.expires = min(verdict.expires, now + verdict.admitted.lasts * random.uniform(0, 0.5))  # noqa: S311  # no secret

        for hear in self._hearers:
            hear(lambda principal: bool(policy) or not revoked.isdisjoint(names_of(principal)))

    def begin(self, number: int) -> None:
        """Go on from a number without knowing what led to it: verdicts that are older than it are forgotten."""
        self.number = max(self.number, number)
        self._good.drop(lambda verdict: verdict.admitted.number < self.number)
        self._bad.clear()

    # -- which keys are good ------------------------------------------------------------------------------------------

    def on_keys_ended(self, hear: Callable[[EndedKeys], None]) -> None:
        """Have somebody hear which keys ended, who holds permissions for longer than a request."""
        self._key_hearers.append(hear)

    def hear_keys(self, keys: Iterable[str]) -> None:
        """Let verdicts that go by these keys hold on: authorization says so, and told every revocation that it has."""
        now = self._clock()
        for key in keys:
            if (hearing := self._keys.get(key)) is not None:
                hearing.at = now

    def end_keys(self, keys: Collection[str], age: float) -> None:
        """Forget the verdicts by keys that are not good any more.

        Keys that were fetched before a verdict was asked for do not end it: they are the older news.

        Args:
            keys: all that are good.
            age: seconds since they were fetched.
        """
        now = self._clock()
        fetched = now - age
        ended = {key for key, hearing in self._keys.items() if key not in keys and hearing.oldest < fetched}
        if not ended:
            return
        # The next look meets verdicts that were on their way, to a stream that begins for example.
        settled = min(fetched, now - _SETTLES)
        for key in ended:
            hearing = self._keys[key]
            hearing.oldest = max(hearing.oldest, settled)
            if hearing.newest < settled:
                del self._keys[key]

        def is_over(key: str | None, asked: float) -> bool:
            return key in ended and asked < fetched

        self._good.drop(lambda verdict: is_over(verdict.admitted.key, verdict.asked))
        for hear in self._key_hearers:
            hear(is_over)

    # -- asking -------------------------------------------------------------------------------------------------------

    def _renew(self, key: Key, credential: Credential | None, verdict: Verdict, now: float) -> None:
        if self._tasks is None or key in self._asking:
            return
        verdict.renewed_from = now + (verdict.admitted.lasts_heard or verdict.admitted.lasts) / _RETRY
        self._tasks.start_soon(self._renew_now, key, credential)

    async def _renew_now(self, key: Key, credential: Credential | None) -> None:
        try:
            await self._ask_once(key, credential)
        except Rejection:
            return  # it is used to the end of its life, and asked for again until then

    async def _ask_once(self, key: Key, credential: Credential | None, *, together: bool = False) -> Verdict:
        """Let one of those who wait ask, and the others have its outcome; where it left, the next one asks."""
        while (asking := self._asking.get(key)) is not None:
            await asking.done.wait()
            # Between the answer and our turn something may have been revoked.
            if asking.outcome is not None and (verdict := asking.outcome()).admitted.number >= self.number:
                return verdict
        asking = self._asking[key] = _Asking()
        try:
            verdict = await self._ask(key, credential, together=together)
        except Rejection as rejection:
            asking.outcome = partial(_raise, rejection)
            raise
        else:
            asking.outcome = lambda: verdict
            return verdict
        finally:
            del self._asking[key]
            asking.done.set()

    async def _ask(self, key: Key, credential: Credential | None, *, together: bool) -> Verdict:
        """Ask until the answer knows of every revocation that was applied here, while it was on its way or before."""
        endpoint = key[0]
        question = Admit(
            endpoint=endpoint,
            credential=SecretStr(credential.reveal()) if credential is not None else None,
            resource=self._access.resources[endpoint] if self._access is not None else None,
        )
        admit = self._client.admit_together if together else self._ask_for_request
        for _ in range(_TRIES):
            asked = self._clock()
            try:
                admitted = await admit(question)
            except BusError as error:
                raise not_answered("authorization") from error
            if admitted.number >= self.number:
                return self._keep(key, admitted, asked)
        raise not_answered("authorization")

    def _complain(self, why: str) -> None:
        """Tell the operator why nobody is admitted."""
        if self._log is not None:
            self._log.error("nobody is admitted", why=why, setting="MCPFLEET_AUTHORIZATION")

    def _keep(self, key: Key, admitted: Admitted, asked: float) -> Verdict:
        expires = asked + admitted.lasts
        principal = admitted.principal
        if principal is not None and principal.is_anonymous and self._challenges is not None:
            # They are not set alike, and nobody gets in by it.
            self._complain("authorization asks for no credentials, and this edge does")
            admitted, principal = admitted.model_copy(update={"principal": None}), None
        elif principal is None and self._challenges is None:
            self._complain("authorization asks for credentials, and this edge does not")
        if principal is None:
            self._good.forget(key)
            return self._bad.put(key, Verdict(admitted, expires))
        if principal.is_anonymous:  # one object for all, so that the path of a call need not compare
            admitted = admitted.model_copy(update={"principal": ANONYMOUS})
        self._bad.forget(key)
        verdict = Verdict(admitted, expires, asked + admitted.lasts / 2, names_of(principal), asked)
        self._extend(verdict)
        return self._good.put(key, verdict)

    def _extend(self, verdict: Verdict) -> None:
        """Let a verdict hold on while its key is heard of, where authorization allows that."""
        admitted, asked = verdict.admitted, verdict.asked
        if admitted.key is None:
            return
        hearing = self._keys.setdefault(admitted.key, Hearing())
        hearing.oldest, hearing.newest = min(hearing.oldest, asked), max(hearing.newest, asked)
        if admitted.lasts_heard is None or admitted.lasts_heard <= admitted.lasts:
            return
        verdict.sure_until = verdict.expires
        verdict.expires = asked + admitted.lasts_heard
        verdict.renewed_from = asked + admitted.lasts_heard * random.uniform(*_RENEWED_BETWEEN)  # noqa: S311  # no secret
        verdict.hearing, verdict.patience = hearing, max(self._silence, admitted.lasts)
