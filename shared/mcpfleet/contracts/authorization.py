"""The messages of authorization: they carry a credential in, and a principal with an expiry out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Final, Literal, TypeAlias

import anyio
from pydantic import Field, SecretStr, field_serializer, field_validator

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError, NoResponders
from mcpfleet.bus.rpc import Rpc, ask
from mcpfleet.contracts.base import Message
from mcpfleet.contracts.manifest import POOL_PATTERN, digest_of
from mcpfleet.contracts.principal import Principal
from mcpfleet.process.batches import Batches
from mcpfleet.telemetry.trace import is_recorded

MOST_TOGETHER: Final = 32
"""Callers in one question."""
MOST_LIMITS: Final = 64
"""Limits in one question."""
AHEAD_SHARE: Final = 64
"""At most one in this many of a window's tokens is granted ahead, so that unused ones are missed little."""
_LOT: Final = 0.1
"""Seconds of a limit that are taken ahead from a service of the former release."""
_OLD_FOR: Final = 60.0
"""Seconds for which a service of the former release is asked in its own way; finding out costs half a second."""
_PATIENCE: Final = 0.005
"""Seconds that a question waits for the one before it at most, to go with others."""
_STREAMS_WITHIN: Final = 0.5
"""Seconds that the verdicts on streams in one answer may take."""
_REQUESTS_WITHIN: Final = 0.02
"""The same for requests: nearly nothing. Checks that need no other process are done by then."""
_NAMES_KEPT: Final = 4_096


class Admit(Message):
    """An edge asks whether a caller may enter an endpoint."""

    endpoint: str = Field(pattern=POOL_PATTERN)
    credential: SecretStr | None = None
    """The bearer token; it prints as stars."""
    resource: str | None = None
    """The endpoint's URL as clients know it, which a token's audience must be (M61)."""

    @field_serializer("credential", when_used="json-unless-none")
    def _reveal(self, credential: SecretStr) -> str:
        """Let the token cross the bus: to authorization, and nowhere else (invariant 9)."""
        return credential.get_secret_value()


class Admitted(Message):
    """The verdict, and for how long an edge may use it."""

    principal: Principal | None = None
    """None for a refused credential."""
    lasts: float = Field(ge=0)
    """Seconds from the asking that the verdict may be cached. It is a time left, so no two clocks are compared."""
    good_for: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Seconds from the asking for which the credential itself is good, at most a day. Streams and other long work use
    it, within a bound of their own. None if nobody tells: as long as the verdict."""
    lasts_heard: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Seconds from the asking that the verdict may be cached while authorization is heard and names the key. None if
    the credential may end without authorization's knowledge: then `lasts` alone counts."""
    key: str | None = None
    """Names the key that signed the credential, or the list that has it."""
    reason: str | None = None
    """The reason of a refusal, for the operator's log; never for the client."""
    number: int = 0
    """The newest revocation that the verdict includes; an edge may have heard of a newer one."""
    judges: tuple[str, ...] = ()
    """The kinds of streams that the operator's policy judges: `listen`, `stream`."""


class AdmitAll(Message):
    """An edge asks about many callers at once, each as if by itself."""

    callers: tuple[Admit, ...] = Field(max_length=MOST_TOGETHER)
    within: float = Field(_STREAMS_WITHIN, ge=0, le=_STREAMS_WITHIN)
    """Seconds after which the answer leaves out the undecided callers."""


class AdmittedAll(Message):
    """The verdicts, in the order of the callers."""

    verdicts: tuple[Admitted | None, ...] = ()
    """None for a caller that took too long: it is asked about by itself."""


RevokedKind: TypeAlias = Literal["subject", "client", "tenant", "policy"]
"""The kind of principal whose permission ends. `policy` means everybody: nobody's ends, and all are asked again."""
RevokedName: TypeAlias = tuple[RevokedKind, str]
"""A kind and a key, by which a revocation names its principals."""


def revoked_name(kind: RevokedKind, name: str) -> RevokedName:
    """Return the name of the principals of a revocation; its key tells nothing to readers without the name."""
    return kind, digest_of(name.encode()) if kind != "policy" else ""


def names_of(principal: Principal) -> frozenset[RevokedName]:
    """Return the names by which a principal's permission may end."""
    return _names(principal.subject, principal.client, principal.tenant)


@lru_cache(maxsize=_NAMES_KEPT)
def _names(subject: str | None, client: str | None, tenant: str | None) -> frozenset[RevokedName]:
    """Cached: a revocation asks for them for each of thousands of streams, many of one caller."""
    names: dict[RevokedKind, str | None] = {"subject": subject, "client": client, "tenant": tenant}
    return frozenset(revoked_name(kind, name) for kind, name in names.items() if name is not None)


class Revocation(Message):
    """A subject, client or tenant whose permission ended at a moment; earlier admissions are asked again."""

    number: int
    kind: RevokedKind
    key: str
    """The first 32 hexadecimal digits of the name's SHA-256; empty for `policy`."""

    def concerns(self, principal: Principal) -> bool:
        """Return whether a principal's permission may have ended."""
        return self.kind == "policy" or (self.kind, self.key) in names_of(principal)


class Authority(Message):
    """The hint on `hint.authority`: the newest number, and the newest revocations; repeated every 2 s."""

    number: int
    revocations: tuple[Revocation, ...] = ()
    keys: tuple[str, ...] | None = None
    """The keys by which credentials are good, as `Admitted.key` names them; None if nobody can name them."""
    keys_age: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Seconds since the keys were fetched: they say nothing about a later verdict."""


class ChangesWanted(Message):
    """An edge asks for the revocations after a number."""

    after: int


class Changes(Message):
    """The revocations after the number, the oldest first, and the newest number; `complete` says that none is
    missing."""

    number: int
    revocations: tuple[Revocation, ...] = ()
    complete: bool = True


class Revoke(Message):
    """An operator ends the permission of all principals with a name.

    Edges forget their verdicts about it and ask again. Credentials from before the revocation are refused from then on,
    if they carry their time (`iat`). Others are refused for as long as the revocation is kept. `policy` refuses nobody:
    everybody's permission is asked again.
    """

    kind: RevokedKind
    name: str = Field("", max_length=1024)
    id: str = Field(pattern=r"^[0-9a-f]{32}$")
    """The asker makes it: asking twice revokes once."""


class Revoked(Message):
    """The revocation stands."""

    number: int


class TakeFromLimit(Message):
    """An edge asks for calls of a limit's window."""

    key: str = Field(pattern=r"^[0-9a-f]{32}$")
    """The key of the limit: endpoint, partition, and the tool if the limit is its own."""
    limit: int = Field(gt=0)
    seconds: float = Field(gt=0, le=86_400, allow_inf_nan=False)
    """Seconds of the window; windows begin at multiples of it on the database's clock."""
    wanted: int = Field(gt=0)
    id: str = Field(pattern=r"^[0-9a-f]{32}$")
    """The asker makes it: asking twice takes once. Its first half names the asker, which asks about a key once at a
    time.
    """


class Taken(Message):
    """The granted part of the wanted calls, and the rest of the window."""

    granted: int = Field(ge=0)
    rest: float = Field(ge=0)
    """Seconds until the next window begins: `Retry-After` if nothing was granted."""


class TokensWanted(Message):
    """The tokens that an edge wants of one limit, or gives back."""

    key: str = Field(pattern=r"^[0-9a-f]{32}$")
    """As in `TakeFromLimit`, and so are the next two."""
    limit: int = Field(gt=0)
    seconds: float = Field(gt=0, le=86_400, allow_inf_nan=False)
    wanted: int = Field(0, ge=0)
    """Tokens for waiting calls: granted as far as the window has them."""
    ahead: int = Field(0, ge=0)
    """Tokens for future calls: granted from a small share of the window's rest."""
    back: int = Field(0, ge=0)
    """Granted tokens that were not used."""
    window: int | None = None
    """The number of their window; another window gets nothing back."""


class TakeTokens(Message):
    """An edge asks for tokens of many limits at once."""

    id: str = Field(pattern=r"^[0-9a-f]{32}$")
    """The asker makes it: asking twice takes, and gives back, once. Its first half names the asker. The second half
    rises with each question: a message that arrives after a newer one about the same limit does nothing."""
    limits: tuple[TokensWanted, ...] = Field(min_length=1, max_length=MOST_LIMITS)

    @field_validator("limits")
    @classmethod
    def _are_different(cls, limits: tuple[TokensWanted, ...]) -> tuple[TokensWanted, ...]:
        if len({each.key for each in limits}) < len(limits):
            raise ValueError("has each limit once")
        return limits


class TokensGranted(Message):
    """The granted tokens of one limit."""

    granted: int = Field(0, ge=0)
    """Below `wanted` if the window has no more."""
    rest: float = Field(0, ge=0)
    """Seconds until the next window begins."""
    window: int | None = None
    """The window's number."""
    left: int = Field(0, ge=0)
    """Tokens that the window has left."""


class TokensTaken(Message):
    """The granted tokens of each limit, in their order."""

    limits: tuple[TokensGranted, ...]


ADMIT = Rpc("authorization.admit", Admit, Admitted, asked_by="edge", repeat=True)
ADMIT_ALL = Rpc("authorization.admit_all", AdmitAll, AdmittedAll, asked_by="edge", repeat=True)
CHANGES = Rpc("authorization.changes", ChangesWanted, Changes, asked_by="edge", repeat=True)
LIMITS = Rpc("authorization.limits", TakeFromLimit, Taken, asked_by="edge", repeat=True)
LIMITS_ALL = Rpc("authorization.limits_all", TakeTokens, TokensTaken, asked_by="edge", repeat=True)
REVOKE = Rpc("authorization.revoke", Revoke, Revoked, asked_by="operator", repeat=True)
AUTHORITY_SUBJECT: Final = "hint.authority"


class AuthorizationClient:
    """Asks authorization for edges and operators; methods raise `BusError`."""

    def __init__(self, bus: Bus, *, timeout: float = 5.0) -> None:
        self._bus = bus
        self._timeout = timeout
        self._old_until = 0.0
        """Until when limits are asked for in the former release's way (monotonic seconds)."""
        self._together: Batches[Admit, Admitted | None] = Batches(
            partial(self._admit_all, _STREAMS_WITHIN), MOST_TOGETHER, spoils=BusError, patience=_PATIENCE
        )
        self._requests: Batches[Admit, Admitted | None] = Batches(
            partial(self._admit_all, _REQUESTS_WITHIN), MOST_TOGETHER, spoils=BusError, patience=_PATIENCE
        )

    async def admit(self, request: Admit) -> Admitted:
        """Return the verdict on a caller."""
        return await ask(self._bus, ADMIT, request, timeout=self._timeout)

    async def admit_together(self, request: Admit) -> Admitted:
        """Return the verdict on a caller, in one question with other callers of the same moment.

        For work that can wait a little: a credential that takes long to check delays the others for a moment.
        """
        admitted = None if is_recorded() else await self._together.do(request)
        return admitted or await self.admit(request)

    async def admit_request(self, request: Admit) -> Admitted:
        """Return the same for a request, whose credential needs no other process.

        A slow check is left out of the common answer, and asked about alone, so it delays nobody.
        """
        admitted = None if is_recorded() else await self._requests.do(request)
        return admitted or await self.admit(request)

    async def _admit_all(self, within: float, wanted: Sequence[Admit]) -> list[Admitted | None]:
        if len(wanted) == 1:
            return [await self.admit(wanted[0])]
        nothing: list[Admitted | None] = [None] * len(wanted)
        try:
            told = await ask(
                self._bus, ADMIT_ALL, AdmitAll(callers=tuple(wanted), within=within), timeout=self._timeout
            )
        except NoResponders:  # a service of the former release
            return nothing
        return [*told.verdicts, *nothing[len(told.verdicts) :]]

    async def changes(self, after: int) -> Changes:
        """Fetch the revocations after a number."""
        return await ask(self._bus, CHANGES, ChangesWanted(after=after), timeout=self._timeout)

    async def take(self, request: TakeFromLimit) -> Taken:
        """Take calls of a limit's window."""
        return await ask(self._bus, LIMITS, request, timeout=self._timeout)

    async def take_tokens(self, request: TakeTokens) -> list[TokensGranted | None]:
        """Take tokens of many limits; None for a limit that a service of the former release did not answer."""
        if time.monotonic() >= self._old_until:
            try:
                told = await ask(self._bus, LIMITS_ALL, request, timeout=self._timeout)
            except NoResponders:
                pass  # a service of the former release, or none
            else:
                lacking = len(request.limits) - len(told.limits)
                return [*told.limits[: len(request.limits)], *[None] * lacking]
        return await self._take_each(request)

    async def _take_each(self, request: TakeTokens) -> list[TokensGranted | None]:
        """Take them one by one, and no more ahead than the former release takes."""
        found: list[TokensGranted | None] = [None] * len(request.limits)
        errors: list[BusError] = []

        async def take(place: int, each: TokensWanted) -> None:
            ahead = min(each.ahead, int(each.limit / each.seconds * _LOT))
            wanted = TakeFromLimit(
                key=each.key, limit=each.limit, seconds=each.seconds, wanted=each.wanted + ahead, id=request.id
            )
            try:
                taken = await self.take(wanted)
            except BusError as error:
                errors.append(error)
            else:
                found[place] = TokensGranted(granted=taken.granted, rest=taken.rest)

        async with anyio.create_task_group() as tasks:
            for place, each in enumerate(request.limits):
                if each.wanted:
                    tasks.start_soon(take, place, each)
        if any(found):
            self._old_until = time.monotonic() + _OLD_FOR
        elif errors:
            raise errors[0]
        return found

    async def revoke(self, request: Revoke) -> Revoked:
        """End the permission of all principals with a name."""
        return await ask(self._bus, REVOKE, request, timeout=self._timeout)
