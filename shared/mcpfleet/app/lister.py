"""A declared list of resources that no declaration names: pages of them, made when a client asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import anyio
from mcp_types import ListResourcesResult
from mcp_types import Resource as WireResource

from mcpfleet.app.context import Context
from mcpfleet.app.declaration import Declaration, check_icons
from mcpfleet.app.errors import Mistake, OutputError
from mcpfleet.app.function import Function
from mcpfleet.app.handler import Answer, Asked, Handler
from mcpfleet.app.signature import Signature
from mcpfleet.app.uri import is_uri

CURSOR: Final = "cursor"
"""The parameter that takes where a list goes on."""
LONGEST_CURSOR: Final = 1_024
"""Characters of a cursor; the client gets it sealed."""
MOST_RESOURCES: Final = 1_000
"""Resources of one page."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list, and where the next one begins."""

    resources: list[WireResource]
    next_cursor: str | None = None
    """The lister's own words; None where this is the last page."""


class Lister(Handler):
    """One list of an App's resources."""

    def __init__(self, handler: Callable[..., Any], declaration: Declaration, signature: Signature) -> None:
        names = [parameter.name for parameter in signature.parameters]
        if names not in ([], [CURSOR]):
            raise Mistake(f"a list takes the Context, and perhaps `{CURSOR}: str | None`: nothing else")
        self._takes_cursor = bool(names)
        super().__init__(declaration.define(None), Function(handler, signature.context))

    def _value(
        self, request: Asked, arguments: dict[str, Any], ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> Awaitable[Any]:
        del arguments
        return self._function.start({CURSOR: request.cursor} if self._takes_cursor else {}, ctx, threads)

    def _finish(self, value: Any, request: Asked) -> Answer:
        del request
        if isinstance(value, ListResourcesResult):
            value = Page(value.resources, value.next_cursor)
        page = value if isinstance(value, Page) else Page(list(value or ()))
        _check(page)
        if page.next_cursor is not None and not self._takes_cursor:
            raise OutputError(f"returned a next cursor, and takes no `{CURSOR}`")
        listed = [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in page.resources]
        return Answer({"resources": listed} | ({} if page.next_cursor is None else {"nextCursor": page.next_cursor}))


def _check(page: Page) -> None:
    """Hold a page to what a client's list may have: one bad entry would spoil all of it.

    Raises:
        OutputError: it breaks a rule.
    """
    if len(page.resources) > MOST_RESOURCES or len(page.next_cursor or "") > LONGEST_CURSOR:
        raise OutputError(
            f"a page has up to {MOST_RESOURCES} resources, and a cursor up to {LONGEST_CURSOR} characters"
        )
    for each in page.resources:
        if not isinstance(each, WireResource):
            raise OutputError(f"listed {type(each).__name__}, and a list is made of `Resource`s")
        if not is_uri(each.uri):
            raise OutputError(f"listed {each.uri!r}, which is no absolute URI")
        try:
            check_icons(each.icons or ())
        except Mistake as mistake:
            raise OutputError(f"listed {each.uri!r}, whose {mistake.why}") from mistake
