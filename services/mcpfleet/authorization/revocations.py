"""The revocations that a process knows: it reads them from the store, tells edges, and checks credentials by them."""

from __future__ import annotations

import anyio
from anyio.abc import TaskStatus

from mcpfleet.authorization.repository import PAGE, RevocationPage, RevocationRepository
from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.authorization.verifier import Verifier
from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import NotRun
from mcpfleet.contracts.authorization import AUTHORITY_SUBJECT, Authority, Revocation, RevokedName, names_of
from mcpfleet.contracts.principal import Principal
from mcpfleet.process.service import Process
from mcpfleet.store.errors import StoreError
from mcpfleet.store.readiness import StoreReadiness

_TOLD = 32
"""Revocations that a hint carries; an edge that lacks more asks for them."""
_PATIENCE = 1.0
"""Seconds that a credential waits for the store. The edge compares numbers, and asks again for what was missed."""
_PRUNED_EVERY = 30
"""Hints between two prunings."""


class KnownRevocations:
    """Every stored revocation, by the name that it concerns. It uses what it knows while the store is away."""

    def __init__(
        self,
        repository: RevocationRepository,
        bus: Bus,
        process: Process[AuthorizationSettings],
        verifier: Verifier | None = None,
    ) -> None:
        self._repository = repository
        self._bus = bus
        self._settings = process.settings
        self._log = process.log
        self._verifier = verifier
        self._moments: dict[RevokedName, float] = {}
        self._numbers: dict[RevokedName, int] = {}
        """The newest revocation of each name."""
        self._newest: tuple[Revocation, ...] = ()
        self.policy = 0
        """The newest change of policy among the revocations, as far as it is kept."""
        self.number = 0
        """This process knows all revocations up to this number."""
        self._readiness = StoreReadiness(process.health, process.log)
        self._turn = anyio.Lock()
        self._begun = 0
        """How many reads for waiting credentials have begun."""
        self._learned = 0
        """The newest of these reads that has ended."""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Read and tell at intervals until cancelled; it counts as started once everything has been read.

        Raises:
            ConfigurationError: the tables are older than this release.
        """
        while not await self._begin():  # noqa: ASYNC110  # no event of ours says that the store is there
            await anyio.sleep(self._settings.authority_hint)
        task_status.started()
        rounds = 0
        while True:
            await self.refresh()
            self.tell()
            rounds += 1
            if rounds % _PRUNED_EVERY == 0:
                await self._prune()
            await anyio.sleep(self._settings.authority_hint)

    async def refresh(self) -> None:
        """Read what was revoked meanwhile; nothing changes where the store does not answer."""
        try:
            if await self._repository.number() > self.number:
                await self._read(self.number)
            self._readiness.answered()
        except StoreError as error:
            self._readiness.failed(error)

    async def learn(self) -> None:
        """Refresh for a credential that waits: for a moment at most, and not while the store is known to be away.

        One read serves all who came before it began, since thousands ask at once when a subject is revoked.
        """
        if self._readiness.holds:
            with anyio.move_on_after(_PATIENCE):
                arrived = self._begun
                async with self._turn:
                    if self._learned <= arrived:
                        self._begun += 1
                        mine = self._begun
                        await self.refresh()
                        self._learned = mine

    def revoked_at(self, principal: Principal) -> float | None:
        """When a principal was last revoked (seconds since 1970); None where no stored revocation concerns it."""
        moments = [self._moments[name] for name in names_of(principal) if name in self._moments]
        return max(moments, default=None)

    def revoked_since(self, principal: Principal, number: int) -> bool:
        """Whether a revocation concerns a principal that is newer than a number."""
        return any(self._numbers.get(name, 0) > number for name in names_of(principal))

    def tell(self) -> None:
        """Hint at the newest revocations and the trusted keys. A lost hint is repeated soon."""
        hint = Authority(number=self.number, revocations=self._newest)
        trusted = self._verifier.trusted() if self._verifier is not None else None
        if trusted is not None:
            hint = hint.model_copy(update={"keys": trusted.keys, "keys_age": trusted.age})
        try:
            self._bus.publish(AUTHORITY_SUBJECT, hint.model_dump_json().encode())
        except NotRun as error:
            self._log.debug("hint not sent", error=str(error))

    async def _begin(self) -> bool:
        try:
            await self._repository.check()
            await self._read(0)
        except StoreError as error:
            self._readiness.failed(error)
            return False
        self._readiness.answered()
        return True

    async def _read(self, known: int) -> None:
        while True:
            page = await self._repository.after(known)
            self._take(page)
            if page.complete:
                return
            known = page.kept[PAGE - 1].revocation.number

    def _take(self, page: RevocationPage) -> None:
        for kept in page.kept:
            # A new policy refuses no credential: edges only ask again for what they know.
            if kept.revocation.kind == "policy":
                self.policy = max(self.policy, kept.revocation.number)
            else:
                name = (kept.revocation.kind, kept.revocation.key)
                self._moments[name] = max(kept.at, self._moments.get(name, kept.at))
                self._numbers[name] = max(kept.revocation.number, self._numbers.get(name, 0))
        known = {each.number: each for each in (*self._newest, *(kept.revocation for kept in page.kept))}
        self._newest = tuple(known[number] for number in sorted(known)[-_TOLD:])
        self.number = max(self.number, page.number if page.complete else page.kept[-1].revocation.number)

    async def _prune(self) -> None:
        """Forget revocations that are older than any credential, in the store and here."""
        try:
            horizon = await self._repository.prune(self._settings.revocation_kept)
        except StoreError as error:
            self._readiness.failed(error)
            return
        self._moments = {name: at for name, at in self._moments.items() if at >= horizon}
        self._numbers = {name: number for name, number in self._numbers.items() if name in self._moments}
