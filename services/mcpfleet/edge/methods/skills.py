"""`skills/list`, `skills/get` and `resources/directory/read`: answered from the view (X20 to X23)."""

from __future__ import annotations

import hashlib
from typing import Final

from mcpfleet.contracts.catalog import Listed
from mcpfleet.contracts.sealing import NotOurs, Unsealable
from mcpfleet.contracts.skills import SKILLS_EXTENSION
from mcpfleet.edge.methods.invoke import Callers
from mcpfleet.edge.methods.lists import LONGEST_CURSOR
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.protocol.own_sealer import SealerFailed
from mcpfleet.edge.protocol.sealer import Sealer
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.wire.errors import Rejection, bad_params, cannot_seal, internal

_HEAD: Final = b'{"_meta":{},"resultType":"complete",'


def has_skills(exchange: Exchange) -> bool:
    """Return whether the endpoint has skills, whoever may see them (X20)."""
    return SKILLS_EXTENSION in exchange.view.capabilities.get("extensions", {})


class SkillMethods:
    """Answers the methods of the extension."""

    def __init__(self, sealer: Sealer, callers: Callers, settings: EdgeSettings) -> None:
        self._sealer = sealer
        self._admission, self._limits, _ = callers
        self._settings = settings

    async def list(self, exchange: Exchange) -> None:
        """Answer `skills/list`: entries by URI, each whole.

        Raises:
            Rejection: -32602 for a cursor that is not ours, or of another state of the list.
        """
        skills, exchange.language = exchange.view.skills, None  # no skill is translated (X34)
        state = skills.digest
        page = skills.page(await self._open(exchange, state))
        following = await self._following(exchange, state, page.last)
        await exchange.reply(b'%b"skills":[%b]%b,%b}' % (_HEAD, page.items, following, self._cache_hints(exchange)))

    async def get(self, exchange: Exchange) -> None:
        """Answer `skills/get`.

        Raises:
            Rejection: -32602 in the same words for what is unknown, hidden or no SKILL.md; 403 where a scope lacks.
        """
        uri, exchange.language = exchange.params["uri"], None
        listed = exchange.view.skills.find(uri)
        if listed is None:
            raise _unknown_skill()
        await self._take(exchange, listed)
        entry = exchange.view.skills.entries[uri]
        await exchange.reply(b'%b"skill":%b,%b}' % (_HEAD, entry, self._cache_hints(exchange)))

    async def read_directory(self, exchange: Exchange) -> None:
        """Answer `resources/directory/read`: the direct children that the caller may see.

        Raises:
            Rejection: -32602 for a file, for what is unknown, and for a bad cursor; 403 where a scope lacks.
        """
        uri, skills, exchange.language = exchange.params["uri"], exchange.view.skills, None
        if not skills.is_directory(uri):
            raise bad_params("not a directory of this server")
        await self._take(exchange, skills.owner(uri))
        state = skills.directory_digest(uri)
        page = skills.children(uri, await self._open(exchange, state, uri))
        following = await self._following(exchange, state, page.last, uri)
        await exchange.reply(b'%b"resources":[%b]%b}' % (_HEAD, page.items, following))

    async def _take(self, exchange: Exchange, listed: Listed | None) -> None:
        """Check the scopes of a skill, and take the caller's rate."""
        if listed is not None:
            self._admission.require(exchange.endpoint, exchange.caller, listed.definition.scopes)
        await self._limits.take_request(exchange.endpoint, exchange.caller)

    def _cache_hints(self, exchange: Exchange) -> bytes:
        ttl = round(self._settings.list_ttl * 1000)
        return b'"ttlMs":%d,"cacheScope":"%b"' % (ttl, exchange.view.scope.encode())

    async def _following(self, exchange: Exchange, state: str, last: str | None, uri: str = "") -> bytes:
        """Compose the member that leads to the next page; empty on the last one."""
        if last is None:
            return b""
        try:
            lasts = self._settings.cursor_lasts
            cursor = await self._sealer.seal([last, state], bound=_bound(exchange, uri), lasts=lasts)
        except Unsealable:
            raise cannot_seal() from None
        except SealerFailed:  # it is logged, and nothing has run
            raise internal(exchange.trace.trace_id) from None
        return b',"nextCursor":"%b"' % cursor.encode()

    async def _open(self, exchange: Exchange, state: str, uri: str = "") -> str | None:
        """Read a cursor; None without one."""
        cursor = exchange.params.get("cursor")
        if cursor is None:
            return None
        if len(cursor) > LONGEST_CURSOR:
            raise bad_params("bad cursor")
        try:
            after, known = await self._sealer.open(cursor, bound=_bound(exchange, uri))
        except NotOurs:
            raise bad_params("bad cursor") from None
        except Unsealable:
            raise cannot_seal() from None
        except SealerFailed:  # it is logged, and nothing has run
            raise internal(exchange.trace.trace_id) from None
        if known != state:
            raise bad_params("bad cursor")
        return str(after)


def _unknown_skill() -> Rejection:
    return bad_params("unknown skill")


def _bound(exchange: Exchange, uri: str) -> bytes:
    """Bind a cursor to one list of one endpoint; any caller may follow it to what it may see."""
    return hashlib.sha256(f"{exchange.endpoint} {exchange.message.method} {uri}".encode()).digest()
