"""`server/discover` and the lists: answered from the view, page by page where they are long.

A cursor is sealed, says after which name the next page begins, and is good on every edge (M47). It grants nothing: the
next page shows what its own caller may see. Resources that no declaration names come from listers, which workers run.
Each page of `resources/list` has those of one lister at most, behind the declared ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from pydantic_core import to_json

from mcpfleet.contracts.manifest import Kind
from mcpfleet.edge.methods.invoke import Invoker
from mcpfleet.edge.protocol.exchange import Exchange
from mcpfleet.edge.protocol.sealer import NotOurs, Sealer, Unsealable
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.views.view import LISTS, Target
from mcpfleet.wire import reply
from mcpfleet.wire.errors import bad_params, cannot_seal, internal

KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "tools/list": "tool",
        "prompts/list": "prompt",
        "resources/list": "resource",
        "resources/templates/list": "template",
    }
)
"""The kind of definition in each list."""
LONGEST_CURSOR: Final = 4_096
"""Characters of a cursor that is read."""


@dataclass(frozen=True, slots=True)
class Place:
    """The beginning of a page within a list."""

    after: str | None = None
    """The declared name before it."""
    lister: str | None = None
    """The lister whose resources it has; None for declared ones."""
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
        place = self._open(exchange)
        items, following, is_private = b"", None, view.is_private
        ttl = view.ttl(LISTS[kind], self._settings.list_ttl)
        if place.lister is None:
            page = view.page(kind, self._settings.page_size, place.after)
            if page is None:
                raise bad_params("bad cursor")
            items, following = page.items, Place(after=page.last) if page.last is not None else None
        listers = view.targets["lister"] if kind == "resource" and following is None else {}
        if listers:
            name = place.lister if place.lister is not None else next(iter(listers))
            if name not in listers:
                raise bad_params("bad cursor")
            found, following = await self._list(exchange, listers, name, place.cursor)
            own = listers[name].listed.definition.list_ttl
            if own is not None:
                ttl = min(ttl, own) if items else own
            items = b",".join(part for part in (items, found) if part)
            is_private = True  # what a handler lists may depend on who asks
        items = exchange.revision.declarations(kind, items)
        result = self._compose(exchange, kind, items, following, ttl=ttl, is_private=is_private)
        await exchange.reply(result)

    async def _list(
        self, exchange: Exchange, listers: Mapping[str, Target], name: str, cursor: str | None
    ) -> tuple[bytes, Place | None]:
        """Have a lister list: its resources, and where the list goes on."""
        found = _read(await self._invoker.list_resources(exchange, listers[name], cursor))
        if found is None:
            raise internal(exchange.trace.trace_id, 200)
        resources, following = found
        items = to_json(resources)[1:-1]
        if following is not None:
            return items, Place(lister=name, cursor=following)
        names = list(listers)
        rest = names[names.index(name) + 1 :]
        return items, Place(lister=rest[0]) if rest else None

    def _compose(
        self, exchange: Exchange, kind: Kind, items: bytes, following: Place | None, *, ttl: float, is_private: bool
    ) -> bytes:
        scope = b"private" if is_private else b"public"
        more = b',"nextCursor":"%b"' % self._seal(exchange, following).encode() if following is not None else b""
        head = b'{"_meta":{},"resultType":"complete","ttlMs":%d,"cacheScope":"%b","%b":[%b]%b}'
        return head % (round(ttl * 1000), scope, LISTS[kind].encode(), items, more)

    def _seal(self, exchange: Exchange, place: Place) -> str:
        content = [place.after, place.lister, place.cursor]
        try:
            return self._sealer.seal(content, bound=_bound(exchange), lasts=self._settings.cursor_lasts)
        except Unsealable:
            raise cannot_seal() from None

    def _open(self, exchange: Exchange) -> Place:
        """Read a cursor; the empty text is one, too, and none of ours (M47)."""
        cursor = exchange.params.get("cursor")
        if cursor is None:
            return BEGINNING
        if len(cursor) > LONGEST_CURSOR:
            raise bad_params("bad cursor")
        try:
            return Place(*self._sealer.open(cursor, bound=_bound(exchange)))
        except NotOurs:
            raise bad_params("bad cursor") from None

    async def discover(self, exchange: Exchange) -> None:
        """Answer `server/discover` (D15, M29)."""
        versions = self._settings.endpoints[exchange.endpoint].revisions
        view = exchange.view
        result = view.discover(versions, round(view.ttl("discover", self._settings.discover_ttl) * 1000))
        whole = reply.server_info(view.server_fields(whole=True))
        await exchange.answer(200, reply.response(exchange.id, result, whole))


def _bound(exchange: Exchange) -> bytes:
    """Bind a cursor to one list of one endpoint; any caller may follow it."""
    return hashlib.sha256(f"{exchange.endpoint} {exchange.message.method}".encode()).digest()


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
    well_formed = all(
        isinstance(each, dict) and isinstance(each.get("uri"), str) and isinstance(each.get("name"), str)
        for each in resources
    )
    return (resources, following) if well_formed else None
