"""The sessions that an edge knows of: read from subscriptions when a request names one, and kept for a while (L5)."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import to_json
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import BusError
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.sessions import (
    CHANGED_SUBJECT,
    BeginSession,
    ChangeSession,
    Session,
    SessionChanged,
    SessionRead,
    SessionsClient,
    session_key,
)
from mcpfleet.contracts.tasks import Binding
from mcpfleet.edge.http.client import Client
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.wire import projection
from mcpfleet.wire.errors import Rejection, bad_params, no_capacity, not_answered, unknown_session
from mcpfleet.wire.headers import SESSION, VERSION

SERVICE: Final = "the subscriptions service"
_RETRY_AFTER: Final = 5
_NOT_ANSWERED: Final = 504
_MOST_DECLARED: Final = 16 * 1024
"""Bytes of what a client says of itself."""


class Named(NamedTuple):
    """A session, and by what the services know it."""

    key: str
    owner: str
    session: Session


class _Kept(NamedTuple):
    named: Named
    until: float


class Sessions:
    """Finds sessions. What it keeps is dropped when a hint says that it is old, or after a while."""

    def __init__(self, bus: Bus, client: SessionsClient, settings: EdgeSettings, *, log: FilteringBoundLogger) -> None:
        self.client = client
        self._bus = bus
        self._settings = settings
        self._log = log
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._changes = 0
        """How many hints came: what was asked before one is not kept after it."""
        self._on_change: list[Callable[[str, bool], None]] = []

    def on_change(self, hear: Callable[[str, bool], None]) -> None:
        """Have somebody hear the key of each session that has changed, and whether it has ended."""
        self._on_change.append(hear)

    async def listen(self) -> None:
        """Hear hints from now on."""
        await self._bus.subscribe(CHANGED_SUBJECT, self._on_hint)

    async def begin(
        self, endpoint: str, principal: Principal, revision: str, client: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> str:
        """Begin a session; returns its id, which nobody can guess (L18).

        Raises:
            Rejection: -32602 where the client says too much of itself, 503 where none can be begun now.
        """
        if len(to_json(client)) + len(to_json(declared)) > _MOST_DECLARED:
            raise bad_params(f"clientInfo and capabilities have more than {_MOST_DECLARED} bytes")
        identifier = secrets.token_hex(16)
        question = BeginSession(
            session=session_key(identifier),
            owner=Binding.of(endpoint, principal).digest,
            revision=revision,
            client=dict(client),
            capabilities=projection.capabilities(declared, revision),
        )
        try:
            await self.client.begin(question)
        except BusError as error:
            self._log.warning("a session could not begin", error=str(error))
            raise no_capacity(_RETRY_AFTER) from None
        return identifier

    async def find(self, endpoint: str, principal: Principal, client: Client) -> Named:
        """Find the session that a request names.

        Raises:
            Rejection: 404 where there is none of this caller at this endpoint, 400 where the request states another
                revision than the session's, 504 where nobody can say.
        """
        identifiers = client.headers.all(SESSION)
        if len(identifiers) != 1:
            raise unknown_session()
        named = await self._known(session_key(identifiers[0].decode("latin-1")), Binding.of(endpoint, principal).digest)
        stated = client.headers.single(VERSION)
        if stated is not None and stated != named.session.revision:
            raise bad_params("the session was begun with another protocol version")
        return named

    async def _known(self, key: str, owner: str) -> Named:
        kept = self._kept.get(key)
        if kept is None or kept.named.owner != owner:
            return await self.read(key, owner)
        if kept.until > time.monotonic():
            return kept.named
        try:
            return await self.read(key, owner)
        except Rejection as rejection:
            # Without an answer the session is what it was: it cannot be changed or ended meanwhile either.
            if rejection.status != _NOT_ANSWERED:
                raise
            return kept.named

    async def read(self, key: str, owner: str) -> Named:
        """Ask what a session is now.

        Raises:
            Rejection: 404 where there is none of this owner, 504 where nobody can say.
        """
        asked_at = self._changes
        try:
            session = await self.client.read(key, owner)
        except BusError as error:
            self._log.warning("a session could not be looked up", error=str(error))
            raise not_answered(SERVICE) from None
        if session is None:
            raise unknown_session()
        return self._keep(Named(key, owner, session), asked_at)

    async def change(self, named: Named, **changes: Any) -> SessionRead:
        """Change a session, and know it from then on as it is.

        Raises:
            Rejection: 404 where it has ended, 504 where nobody can say whether it has changed.
        """
        asked_at = self._changes
        try:
            read = await self.client.change(ChangeSession(session=named.key, owner=named.owner, **changes))
        except BusError as error:
            self._log.warning("a session could not be changed", error=str(error))
            raise not_answered(SERVICE) from None
        if read.session is None:
            raise unknown_session()
        self._keep(Named(named.key, named.owner, read.session), asked_at)
        return read

    async def end(self, named: Named) -> None:
        """End a session, at every edge.

        Raises:
            Rejection: 504 where nobody can say whether it has ended.
        """
        try:
            await self.client.end(named.key, named.owner)
        except BusError as error:
            self._log.warning("a session could not be ended", error=str(error))
            raise not_answered(SERVICE) from None
        self._forget(named.key, ended=True)

    def _keep(self, named: Named, asked_at: int) -> Named:
        if asked_at == self._changes:
            self._kept[named.key] = _Kept(named, time.monotonic() + self._settings.session_kept)
            self._kept.move_to_end(named.key)
            while len(self._kept) > self._settings.session_entries:
                self._kept.popitem(last=False)
        return named

    def _on_hint(self, message: Incoming) -> None:
        try:
            changed = SessionChanged.model_validate_json(message.body)
        except ValidationError:
            self._log.warning("malformed hint", subject=message.subject)
            return
        self._forget(changed.session, ended=changed.ended)

    def _forget(self, key: str, *, ended: bool) -> None:
        self._changes += 1
        self._kept.pop(key, None)
        for hear in self._on_change:
            hear(key, ended)
