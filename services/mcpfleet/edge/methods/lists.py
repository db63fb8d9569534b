"""`server/discover` and the lists: answered from the view, page by page where they are long.

A cursor is sealed, says where the next page begins, and is good on every edge (M47). It grants nothing: the next page
shows what its own caller may see. It is bound to the list as it was: once the list is another, the cursor is a bad one,
since pages of two lists are no list (X64). Resources that no declaration names come from listers, which workers run.
Each page of `resources/list` has those of one lister at most, behind the declared ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from pydantic_core import to_json

from mcpfleet.contracts.manifest import Kind
from mcpfleet.contracts.sealing import NotOurs, Unsealable
from mcpfleet.edge.methods.invoke import Invoker
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.protocol.own_sealer import SealerFailed
from mcpfleet.edge.protocol.sealer import Sealer
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.views.view import LISTS, Target
from mcpfleet.wire import reply
from mcpfleet.wire.errors import bad_params, cannot_seal, internal
from mcpfleet.wire.filter import ListKind

KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "tools/list": "tool",
        "prompts/list": "prompt",
        "resources/list": "resource",
        "resources/templates/list": "template",
    }
)
"""The kind of definition in each list."""
LONGEST_CURSOR: Final = 2_048
"""Bytes of a cursor, which is ASCII (X64)."""
LONGEST_OWN: Final = 1_024
"""Bytes of a lister's own cursor as JSON, which ours has inside."""
_CHANGES: Final[Mapping[Kind, ListKind]] = MappingProxyType(
    {"tool": "tools", "prompt": "prompts", "resource": "resources", "template": "resources"}
)
"""The list whose digest binds a cursor."""


@dataclass(frozen=True, slots=True)
class Place:
    """The beginning of a page within a list."""

    begin: int = 0
    """The declared entries before it."""
    lister: int | None = None
    """The number of the lister whose resources it has, by name; None for declared ones."""
    cursor: str | None = None
    """The lister's own."""


BEGINNING: Final = Place()


class Lists:
    """Answers lists."""

    def __init__(self, sealer: Sealer, invoker: Invoker, settings: EdgeSettings) -> None:
        self._sealer = sealer
        self._invoker = invoker
        self._settings = settings

    async def answer(self, exchange: Exchange) -> None:
        """Answer a list (M34, M45, M46).

        Raises:
            Rejection: -32602 for a cursor that is not ours, or whose place is gone.
            ClientGone: the client left while a lister ran.
        """
        view, kind = exchange.view, KINDS[exchange.message.method]
        place = await self._open(exchange, kind)
        items, following, scope = b"", None, view.list_scope(kind)
        ttl = view.ttl(LISTS[kind], self._settings.list_ttl)
        if place.lister is None:
            page = view.page(kind, self._settings.page_size, place.begin)
            items, following = page.items, Place(begin=page.following) if page.following is not None else None
        listers = list(view.targets["lister"].values()) if kind == "resource" and following is None else []
        if listers:
            number = place.lister or 0
            found, following = await self._list(exchange, listers, number, place.cursor)
            own = listers[number].listed.definition.list_ttl
            if own is not None:
                ttl = min(ttl, own) if items else own
            items = b",".join(part for part in (items, found) if part)
            scope = "private"  # what a handler lists may depend on who asks
        items = exchange.revision.declarations(kind, items)
        more = b""
        if following is not None:
            more = b',"nextCursor":"%b"' % (await self._seal(exchange, kind, following, ran=bool(listers))).encode()
        head = b'{"_meta":{},"resultType":"complete","ttlMs":%d,"cacheScope":"%b","%b":[%b]%b}'
        result = head % (round(ttl * 1000), scope.encode(), LISTS[kind].encode(), items, more)
        await exchange.end(200, exchange.response(result))

    async def _list(
        self, exchange: Exchange, listers: Sequence[Target], number: int, cursor: str | None
    ) -> tuple[bytes, Place | None]:
        """Have a lister list: its resources, and where the list goes on."""
        several = len(listers) > 1
        found = _read(await self._invoker.list_resources(exchange, listers[number], cursor, of_several=several))
        if found is None:
            raise internal(exchange.trace.trace_id, 200)
        resources, following = found
        items = to_json(resources)[1:-1]
        if following is not None:
            return items, Place(lister=number, cursor=following)
        if several and exchange.progress_token is not None:
            ended = to_json({"progress": number + 1, "total": len(listers), "message": "lists that have ended"})
            await exchange.send_events(reply.event(reply.progress(exchange.progress_token, ended)))
        return items, Place(lister=number + 1) if number + 1 < len(listers) else None

    async def _seal(self, exchange: Exchange, kind: Kind, place: Place, *, ran: bool) -> str:
        content = [place.begin, place.lister, place.cursor]
        try:
            return await self._sealer.seal(content, bound=_bound(exchange, kind), lasts=self._settings.cursor_lasts)
        except Unsealable:
            raise cannot_seal() from None
        except SealerFailed:  # it is logged
            raise internal(exchange.trace.trace_id, 200 if ran else 500) from None

    async def _open(self, exchange: Exchange, kind: Kind) -> Place:
        """Read a cursor; the empty text is one, too, and none of ours (M47)."""
        cursor = exchange.params.get("cursor")
        if cursor is None:
            return BEGINNING
        if len(cursor) > LONGEST_CURSOR:
            raise bad_params("bad cursor")
        try:
            return Place(*await self._sealer.open(cursor, bound=_bound(exchange, kind)))
        except NotOurs:
            raise bad_params("bad cursor") from None
        except Unsealable:
            raise cannot_seal() from None
        except SealerFailed:  # it is logged
            raise internal(exchange.trace.trace_id) from None

    async def discover(self, exchange: Exchange) -> None:
        """Answer `server/discover` (D15, M29)."""
        versions = self._settings.endpoints[exchange.endpoint].revisions
        view = exchange.view
        result = view.discover(versions, round(view.ttl("discover", self._settings.discover_ttl) * 1000))
        whole = reply.server_info(view.server_fields(whole=True))
        await exchange.answer(200, reply.response(exchange.id, result, whole))


def _bound(exchange: Exchange, kind: Kind) -> bytes:
    """Bind a cursor to one list of one endpoint, in its revision and language and as it is now; any caller of it may
    follow it."""
    view = exchange.view
    digest = view.list_digest(_CHANGES[kind]).hex()
    names = f"{exchange.endpoint} {exchange.message.method} {exchange.revision.name} {view.language or ''} {digest}"
    return hashlib.sha256(names.encode()).digest()


def _read(body: bytes) -> tuple[list[dict[str, Any]], str | None] | None:
    """Read what a lister answered; None where it is malformed."""
    try:
        value = reply.read(body)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    resources, following = value.get("resources"), value.get("nextCursor")
    if not isinstance(resources, list) or not isinstance(following, str | None):
        return None
    if following is not None and len(to_json(following)) > LONGEST_OWN + 2:  # its quotes
        return None
    well_formed = all(
        isinstance(each, dict) and isinstance(each.get("uri"), str) and isinstance(each.get("name"), str)
        for each in resources
    )
    return (resources, following) if well_formed else None
