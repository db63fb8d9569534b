"""The sessions that an edge knows of: read from subscriptions when a request names one, and kept for a while (L5)."""

from __future__ import annotations

import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError, is_undone
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.sessions import (
    CHANGED_SUBJECT,
    BeginSession,
    ChangeSession,
    SessionChanged,
    SessionRead,
    SessionsClient,
    session_key,
)
from mcpfleet.contracts.tasks import Binding
from mcpfleet.edge.identity.limits import Limits
from mcpfleet.edge.protocol.exchange import Exchange, SessionRef, check_declared
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.wire import projection
from mcpfleet.wire.errors import (
    NotAnswered,
    UnknownSession,
    maybe_done,
    no_capacity,
    not_answered,
    other_revision,
    unchanged,
)

SERVICE: Final = "the subscriptions service"
_RETRY_AFTER: Final = 5
_STALE_FOR: Final = 30
"""Serve a stale session this many times `session_kept` while subscriptions is unreachable."""


class _Kept(NamedTuple):
    named: SessionRef
    since: float


class SessionInfo(NamedTuple):
    """The client's description of itself, and the lists that it is shown, as its session begins."""

    revision: str
    client: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    lists: Mapping[str, str]
    """By each list's kind the digest of what is in it now."""


class SessionCache:
    """Finds sessions. What it keeps is dropped when a hint says that it is old, or after a while."""

    def __init__(
        self, bus: Bus, client: SessionsClient, limits: Limits, settings: EdgeSettings, *, log: FilteringBoundLogger
    ) -> None:
        self.client = client
        self._bus = bus
        self._limits = limits
        self._settings = settings
        self._log = log
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._reading: Counter[str] = Counter()
        """The sessions that are being read, and how often."""
        self._spoiled: set[str] = set()
        """Those of them of which a hint came meanwhile: what is read may know nothing of it."""
        self._hearers: list[Callable[[SessionChanged], None]] = []

    def on_change(self, hear: Callable[[SessionChanged], None]) -> None:
        """Have somebody hear of each session that has changed or ended."""
        self._hearers.append(hear)

    async def listen(self) -> None:
        """Hear hints from now on."""
        await self._bus.subscribe(CHANGED_SUBJECT, self._on_hint)

    async def begin(self, endpoint: str, principal: Principal, known: SessionInfo) -> str:
        """Begin a session; returns its id, which nobody can guess (L18).

        Raises:
            Rejection: -32602 where the client says too much of itself, 503 where none can be begun now.
        """
        check_declared(known.client, known.capabilities)
        identifier = secrets.token_hex(16)
        question = BeginSession(
            session=session_key(identifier),
            owner=Binding.of(endpoint, principal).digest,
            revision=known.revision,
            client=dict(known.client),
            capabilities=projection.capabilities(known.capabilities, known.revision),
            lists=dict(known.lists),
        )
        try:
            await self.client.begin(question)
        except BusError as error:
            self._log.warning("a session could not begin", error=str(error))
            raise no_capacity(_RETRY_AFTER) from None
        return identifier

    async def find(self, exchange: Exchange) -> SessionRef:
        """Find the session that a request names. Whatever has to be asked for is limited: ids may be invented.

        Raises:
            Rejection: 404 where there is none of this caller at this endpoint, 400 where the request states another
                revision than the session's, 429 where the caller asks too often, 504 where nobody can say.
        """
        endpoint, principal = exchange.endpoint, exchange.caller
        identifier = exchange.headers.session()
        if identifier is None:
            raise UnknownSession
        key, owner = session_key(identifier.decode("latin-1")), Binding.of(endpoint, principal).digest
        kept = self._kept.get(key)
        if kept is not None and (kept.named.owner != owner or self._age(kept) > self._settings.session_kept):
            kept = None
        if kept is None:
            await self._limits.take_look(endpoint, principal)
        named = kept.named if kept is not None else await self._read_or_recall(key, owner)
        stated = exchange.headers.version()
        if stated is not None and stated != named.session.revision:
            raise other_revision()
        return named

    async def _read_or_recall(self, key: str, owner: str) -> SessionRef:
        """Ask; where nobody answers, a session that was known a while ago goes on as it was."""
        try:
            return await self.read(key, owner)
        except NotAnswered:
            kept = self._kept.get(key)
            if kept is None or kept.named.owner != owner or self._age(kept) > self._settings.session_kept * _STALE_FOR:
                raise
            return kept.named

    @staticmethod
    def _age(kept: _Kept) -> float:
        return time.monotonic() - kept.since

    async def read(self, key: str, owner: str) -> SessionRef:
        """Ask what a session is now.

        Raises:
            Rejection: 404 where there is none of this owner, 504 where nobody can say.
        """
        self._reading[key] += 1
        try:
            session = await self.client.read(key, owner)
        except BusError as error:
            self._log.warning("a session could not be looked up", error=str(error))
            raise not_answered(SERVICE) from None
        finally:
            is_old = key in self._spoiled
            self._reading[key] -= 1
            if not self._reading[key]:
                del self._reading[key]
                self._spoiled.discard(key)
        if session is None:
            kept = self._kept.get(key)
            if kept is not None and kept.named.owner == owner:
                del self._kept[key]
            raise UnknownSession
        named = SessionRef(key, owner, session)
        if not is_old:
            # Requests need no URIs, of which there may be much.
            self._kept[key] = _Kept(named._replace(session=session.model_copy(update={"uris": ()})), time.monotonic())
            self._kept.move_to_end(key)
            while len(self._kept) > self._settings.session_entries:
                self._kept.popitem(last=False)
        return named

    async def change(self, named: SessionRef, **changes: Any) -> SessionRead:
        """Change a session; the next request reads what it is then.

        Raises:
            Rejection: 404 where it has ended, 504 where nobody can say whether it has changed.
        """
        try:
            read = await self.client.change(ChangeSession(session=named.key, owner=named.owner, **changes))
        except BusError as error:
            self._log.warning("a session could not be changed", error=str(error))
            raise (unchanged if is_undone(error) else maybe_done)(SERVICE) from None
        self._kept.pop(named.key, None)
        if read.session is None:
            raise UnknownSession
        return read

    async def end(self, named: SessionRef) -> None:
        """End a session, at every edge.

        Raises:
            Rejection: 504 where nobody can say whether it has ended.
        """
        try:
            await self.client.end(named.key, named.owner)
        except BusError as error:
            self._log.warning("a session could not be ended", error=str(error))
            raise (unchanged if is_undone(error) else maybe_done)(SERVICE) from None
        self._hear(SessionChanged(session=named.key, ended=True, deleted=True))

    def _on_hint(self, message: Incoming) -> None:
        try:
            changed = SessionChanged.model_validate_json(message.body)
        except ValidationError:
            self._log.warning("malformed hint", subject=message.subject)
            return
        self._hear(changed)

    def _hear(self, changed: SessionChanged) -> None:
        self._kept.pop(changed.session, None)
        if changed.session in self._reading:
            self._spoiled.add(changed.session)
        for hear in self._hearers:
            hear(changed)
