"""Keeps sessions for a while: they are read from subscriptions when a request names one (L5)."""

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
from mcpfleet.contracts.grants import Holder
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
"""Seconds after which a client may try again to begin a session."""
_STALE_FOR: Final = 30
"""Serve a stale session this many times `session_kept` while subscriptions is unreachable."""


class _Kept(NamedTuple):
    ref: SessionRef
    since: float
    """Monotonic seconds."""


class SessionInfo(NamedTuple):
    """The client's description of itself, and the lists that it is shown, as its session begins."""

    revision: str
    client: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    lists: Mapping[str, str]
    """By kinds of lists, the digest of the list as it is now."""


class SessionCache:
    """Finds sessions. A hint of a change drops a kept session, and so does its age."""

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
        """The sessions that are being read, and the number of reads."""
        self._outdated: set[str] = set()
        """Those of them that had a hint meanwhile: the read may miss the change."""
        self._listeners: list[Callable[[SessionChanged], None]] = []
        self._holder: Callable[[Exchange], Holder | None] = lambda _exchange: None

    def on_change(self, listener: Callable[[SessionChanged], None]) -> None:
        """Call a listener with each session that has changed or ended."""
        self._listeners.append(listener)

    def tell_of(self, holder: Callable[[Exchange], Holder | None]) -> None:
        """Tell subscriptions of the holder that this function finds of a request, with each read."""
        self._holder = holder

    async def listen(self) -> None:
        """Receive hints from now on."""
        await self._bus.subscribe(CHANGED_SUBJECT, self._on_hint)

    async def begin(self, endpoint: str, principal: Principal, info: SessionInfo) -> str:
        """Begin a session, and return its id, which nobody can guess (L18).

        Raises:
            Rejection: -32602 where the client's description is too large, 503 where no session can begin now.
        """
        check_declared(info.client, info.capabilities)
        identifier = secrets.token_hex(16)
        question = BeginSession(
            session=session_key(identifier),
            owner=Binding.of(endpoint, principal).digest,
            revision=info.revision,
            client=dict(info.client),
            capabilities=projection.capabilities(info.capabilities, info.revision),
            lists=dict(info.lists),
        )
        try:
            await self.client.begin(question)
        except BusError as error:
            self._log.warning("session not begun", error=str(error))
            raise no_capacity(_RETRY_AFTER) from None
        return identifier

    async def find(self, exchange: Exchange) -> SessionRef:
        """Find the session that a request names. Reads from subscriptions are limited, since ids may be invented.

        Raises:
            Rejection: 404 where there is none of this caller at this endpoint. 400 where the request states another
                revision than the session's. 429 where the caller asks too often. 504 where the session is unknown now.
        """
        endpoint, principal = exchange.endpoint, exchange.caller
        identifier = exchange.headers.session()
        if identifier is None:
            raise UnknownSession
        key, owner = session_key(identifier.decode("latin-1")), Binding.of(endpoint, principal).digest
        kept = self._kept.get(key)
        if kept is not None and (kept.ref.owner != owner or self._age(kept) > self._settings.session_kept):
            kept = None
        if kept is None:
            await self._limits.take_lookup(endpoint, principal)
        ref = kept.ref if kept is not None else await self._read_or_recall(key, owner, self._holder(exchange))
        if ref.session.revision not in self._settings.endpoints[endpoint].revisions:  # the endpoint had it once
            raise UnknownSession
        stated = exchange.headers.version()
        if stated is not None and stated != ref.session.revision:
            raise other_revision()
        return ref

    async def _read_or_recall(self, key: str, owner: str, holder: Holder | None) -> SessionRef:
        """Read a session; where subscriptions does not answer, return the stale one that is kept."""
        try:
            return await self.read(key, owner, holder)
        except NotAnswered:
            kept = self._kept.get(key)
            if kept is None or kept.ref.owner != owner or self._age(kept) > self._settings.session_kept * _STALE_FOR:
                raise
            return kept.ref

    @staticmethod
    def _age(kept: _Kept) -> float:
        return time.monotonic() - kept.since

    async def read(self, key: str, owner: str, holder: Holder | None = None) -> SessionRef:
        """Read a session from subscriptions, and tell it of the owner's newest admitted request (X57).

        Raises:
            Rejection: 404 where this owner has no such session, 504 where subscriptions does not answer.
        """
        self._reading[key] += 1
        try:
            session = await self.client.read(key, owner, holder)
        except BusError as error:
            self._log.warning("session not read", error=str(error))
            raise not_answered(SERVICE) from None
        finally:
            is_outdated = key in self._outdated
            self._reading[key] -= 1
            if not self._reading[key]:
                del self._reading[key]
                self._outdated.discard(key)
        if session is None:
            kept = self._kept.get(key)
            if kept is not None and kept.ref.owner == owner:
                del self._kept[key]
            raise UnknownSession
        ref = SessionRef(key, owner, session)
        if not is_outdated:
            # Requests need no URIs, which may be large.
            slim = session.model_copy(update={"uris": (), "grants": ()})
            self._kept[key] = _Kept(ref._replace(session=slim), time.monotonic())
            self._kept.move_to_end(key)
            while len(self._kept) > self._settings.session_entries:
                self._kept.popitem(last=False)
        return ref

    async def change(self, ref: SessionRef, **changes: Any) -> SessionRead:
        """Change a session; the next request reads it again.

        Raises:
            Rejection: 404 where it has ended, 504 where it is unknown whether it has changed.
        """
        try:
            read = await self.client.change(ChangeSession(session=ref.key, owner=ref.owner, **changes))
        except BusError as error:
            self._log.warning("session not changed", error=str(error))
            raise (unchanged if is_undone(error) else maybe_done)(SERVICE) from None
        self._kept.pop(ref.key, None)
        if read.session is None:
            raise UnknownSession
        return read

    async def end(self, ref: SessionRef) -> None:
        """End a session, at every edge.

        Raises:
            Rejection: 504 where it is unknown whether it has ended.
        """
        try:
            await self.client.end(ref.key, ref.owner)
        except BusError as error:
            self._log.warning("session not ended", error=str(error))
            raise (unchanged if is_undone(error) else maybe_done)(SERVICE) from None
        self._notify(SessionChanged(session=ref.key, ended=True, deleted=True))

    def _on_hint(self, message: Incoming) -> None:
        try:
            changed = SessionChanged.model_validate_json(message.body)
        except ValidationError:
            self._log.warning("malformed hint", subject=message.subject)
            return
        self._notify(changed)

    def _notify(self, changed: SessionChanged) -> None:
        self._kept.pop(changed.session, None)
        if changed.session in self._reading:
            self._outdated.add(changed.session)
        for listener in self._listeners:
            listener(changed)
