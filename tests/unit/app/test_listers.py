"""Lists of resources that no declaration names."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.app import App, Context, DeclarationError, Icon, OutputError, Page, Request, Resource


def lister(handler: Any, **options: Any) -> App:
    app = App("test", version="1")
    app.resources(**options)(handler)
    return app


async def page(app: App, cursor: str | None = None) -> Any:
    [handler] = app.handlers
    return (await handler.answer(Request(cursor=cursor), Context())).fields()


async def test_a_list_is_resources_as_a_client_reads_them() -> None:
    async def shelf() -> list[Resource]:
        return [Resource(uri="library://books/1", name="emma", mime_type="text/plain")]

    app = lister(shelf)
    assert app.handlers[0].definition.kind == "lister"
    assert app.handlers[0].definition.wire == {}
    assert await page(app) == {"resources": [{"uri": "library://books/1", "name": "emma", "mimeType": "text/plain"}]}


async def test_a_long_list_comes_in_pages() -> None:
    async def shelf(ctx: Context, cursor: str | None = None) -> Page:
        start = int(cursor or 0)
        return Page([Resource(uri=f"library://books/{start}", name="b")], str(start + 1) if start < 1 else None)

    app = lister(shelf)
    first = await page(app)
    assert first["nextCursor"] == "1"
    assert "nextCursor" not in await page(app, first["nextCursor"])


@pytest.mark.parametrize(
    "listed",
    [
        ["library://books/1"],
        [Resource(uri="books", name="x")],
        [Resource(uri="library://b", name="x", icons=[Icon(src="http://x/")])],
        Page([], "1"),
        [Resource(uri="library://b", name="x")] * 1001,
    ],
)
async def test_an_entry_that_would_spoil_the_list_is_an_error_for_the_operator(listed: Any) -> None:
    async def shelf() -> Any:
        return listed

    with pytest.raises(OutputError):
        await page(lister(shelf))


async def takes_more(page: int) -> list[Resource]:
    return []


async def fine() -> list[Resource]:
    return []


@pytest.mark.parametrize(
    ("handler", "options", "why"),
    [(takes_more, {}, "cursor"), (fine, {"asks": {"roots"}}, "M50"), (fine, {"may_ask": {"roots"}}, "M50")],
)
def test_a_bad_list_is_refused(handler: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        lister(handler, **options)
