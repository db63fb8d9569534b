"""The example that a newcomer runs first."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from mcpfleet.app import Answers, App, CancelSignal, Context, NotFound, Outcome, Progress, Request, load

LIBRARY = Path(__file__).parents[3] / "examples" / "library.py"


@pytest.fixture
def app() -> Iterator[App]:
    """Load it anew, so that each test has a library without holds."""
    path = list(sys.path)
    yield load(str(LIBRARY))
    sys.path[:] = path
    del sys.modules["library"]


@pytest.fixture
def module(app: App, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example's module, counting quickly."""
    monkeypatch.setattr(sys.modules["library"], "COUNTING", 0.0)
    return sys.modules["library"]


async def ask(app: App, tool: str, ctx: Context | None = None, **arguments: Any) -> Outcome:
    return await app.tools[tool].call(arguments, ctx or Context(), threads=anyio.CapacityLimiter(1))


def test_it_offers_described_tools(app: App) -> None:
    assert sorted(app.tools) == ["place_hold", "read_book", "report", "search", "suggest", "take_stock"]
    for tool in app.tools.values():
        assert tool.definition.wire["description"]
        assert tool.definition.wire["outputSchema"]
        for parameter in tool.definition.wire["inputSchema"].get("properties", {}).values():
            assert parameter["description"]


def test_every_book_can_be_read(module: ModuleType) -> None:
    assert len(module.BOOKS) == 30
    assert all(book.pages and all(book.pages) for book in module.BOOKS.values())


async def test_a_search_finds_titles_and_authors(app: App) -> None:
    found = (await ask(app, "search", query="AUSTEN")).structured
    assert [book["title"] for book in found] == ["Pride and Prejudice", "Emma"]


async def test_a_search_is_limited(app: App) -> None:
    assert len((await ask(app, "search", query="e", limit=3)).structured) == 3


async def test_a_page_is_read(app: App) -> None:
    page = (await ask(app, "read_book", book=3)).structured
    assert page == {"title": "Moby-Dick", "page": 1, "of": 3, "text": "Call me Ishmael."}


@pytest.mark.parametrize("arguments", [{"book": 31}, {"book": 3, "page": 4}])
async def test_what_is_not_there_is_told_to_the_model(app: App, arguments: dict[str, Any]) -> None:
    assert (await ask(app, "read_book", **arguments)).is_error


async def test_a_book_is_held_once(app: App) -> None:
    assert not (await ask(app, "place_hold", book=2, reader="Ann")).is_error
    second = await ask(app, "place_hold", book=2, reader="Ben")
    assert second.is_error
    assert not (await ask(app, "place_hold", book=1, reader="Ben")).is_error


async def test_the_report_tells_its_progress(app: App, module: ModuleType) -> None:
    sent: list[Progress] = []
    outcome = await ask(app, "report", Context(report=sent.append))
    assert outcome.structured["books"] == 30
    assert outcome.structured["oldest"] == "Robinson Crusoe (1719)"
    assert [report.value for report in sent] == list(range(11))
    assert {report.total for report in sent} == {10}


async def test_taking_stock_asks_and_is_a_task(app: App, module: ModuleType) -> None:
    asked = Answers(look={"with_titles": True})
    lines = (await ask(app, "take_stock", Context(asker=asked, is_task=True))).structured
    assert len(lines) == 10
    assert lines[0].startswith("Shelf 1: ")
    assert "most of them in" in lines[0]
    assert app.tools["take_stock"].definition.task == "required"
    assert app.tools["place_hold"].definition.idempotency_key == "request_id"


async def test_the_report_hears_that_it_is_cancelled(app: App, module: ModuleType) -> None:
    signal = CancelSignal()
    outcome = await ask(app, "report", Context(report=lambda _: signal.cancel(), cancelled=signal))
    assert outcome.is_error


async def test_a_reader_is_asked_before_something_is_suggested(app: App) -> None:
    asked = Answers(taste={"century": "18th", "is_short": False})
    found = (await ask(app, "suggest", Context(asker=asked))).structured
    assert {book["year"] for book in found} == {1719, 1726}
    declined = await ask(app, "suggest", Context(asker=Answers(taste="decline")))
    assert declined.is_error


async def test_a_books_opening_is_a_resource(app: App) -> None:
    opening = app.reads["library://books/{book}"]
    answer = await opening.answer(Request(uri="library://books/3"), Context())
    assert answer.fields()["contents"][0]["text"].startswith("Call me Ishmael.")
    for uri in ("library://books/31", "library://books/three"):
        with pytest.raises(NotFound):
            await opening.answer(Request(uri=uri), Context())


async def test_every_book_is_listed_and_its_number_and_title_are_completed(app: App) -> None:
    [shelf] = [each for each in app.handlers if each.definition.kind == "lister"]
    listed = (await shelf.answer(Request(), Context())).fields()["resources"]
    assert [each["title"] for each in listed[:2]] == ["Pride and Prejudice", "Emma"]
    assert app.reads["library://books/{book}"].definition.completes == ("book",)
    assert app.prompts["review"].definition.completes == ("title",)


async def test_a_review_has_its_length(app: App) -> None:
    answer = await app.prompts["review"].answer(Request({"title": "Emma", "words": "50"}), Context())
    assert "about 50 words" in answer.fields()["messages"][0]["content"]["text"]
