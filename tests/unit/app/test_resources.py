"""Resources and templates: what is declared, and what is read."""

from __future__ import annotations

import base64
import datetime as dt
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from mcpfleet.app import (
    Annotations,
    App,
    BlobResourceContents,
    Context,
    DeclarationError,
    DeclarationWarning,
    Icon,
    NotFound,
    OutputError,
    Request,
    TextResourceContents,
)


@dataclass(frozen=True)
class Book:
    title: str
    printed: dt.date | None = None


def returning(annotation: Any, value: Any) -> Callable[..., Any]:
    async def handler():  # type: ignore[no-untyped-def]
        return value

    handler.__annotations__["return"] = annotation
    return handler


async def read(app: App, uri: str) -> Any:
    """Read a URI as a worker does: by the one definition of the App."""
    [handler] = app.handlers
    return (await handler.answer(Request(uri=uri), Context(), threads=anyio.CapacityLimiter(1))).fields()["contents"]


def resource(handler: Callable[..., Any], uri: str = "library://books", **options: Any) -> App:
    app = App("test", version="1")
    app.resource(uri, **options)(handler)
    return app


def test_a_resource_is_announced_as_2026_07_28_lists_it() -> None:
    async def books() -> str: ...  # type: ignore[empty-body]

    books.__doc__ = "All books."
    app = resource(
        books,
        title="Books",
        mime_type="text/markdown",
        size=5,
        ttl=30,
        annotations=Annotations(priority=1),
        icons=[Icon(src="data:,")],
        meta={"com.example/x": 1},
        scopes=["books:read"],
        only_for=["tenant:acme*"],
    )
    definition = app.reads["library://books"].definition
    assert definition.wire == {
        "uri": "library://books",
        "name": "books",
        "title": "Books",
        "description": "All books.",
        "mimeType": "text/markdown",
        "size": 5,
        "icons": [{"src": "data:,"}],
        "annotations": {"priority": 1.0},
        "_meta": {"com.example/x": 1},
    }
    assert (definition.kind, definition.ttl) == ("resource", 30)
    assert (definition.scopes, definition.only_for) == (("books:read",), ("tenant:acme*",))


def test_a_uri_with_variables_is_a_template() -> None:
    async def book(number: int) -> Book: ...  # type: ignore[empty-body]

    definition = resource(book, "library://books/{number}", ttl=5).reads["library://books/{number}"].definition
    assert (definition.kind, definition.ttl) == ("template", 5)
    assert definition.wire == {
        "uriTemplate": "library://books/{number}",
        "name": "book",
        "mimeType": "application/json",
    }


@pytest.mark.parametrize(
    ("annotation", "value", "contents"),
    [
        (str, "text", {"mimeType": "text/plain", "text": "text"}),
        (bytes, b"\x00", {"mimeType": "application/octet-stream", "blob": base64.b64encode(b"\x00").decode()}),
        (Book, Book("Emma"), {"mimeType": "application/json", "text": '{"title":"Emma","printed":null}'}),
        (Book | None, Book("Emma"), {"mimeType": "application/json", "text": '{"title":"Emma","printed":null}'}),
        (str | None, "text", {"mimeType": "text/plain", "text": "text"}),
        (list[int], [1, 2], {"mimeType": "application/json", "text": "[1,2]"}),
        (Any, {"a": 1}, {"mimeType": "application/json", "text": '{"a":1}'}),
    ],
)
async def test_what_a_handler_returns_is_what_is_read(annotation: Any, value: Any, contents: dict[str, Any]) -> None:
    app = resource(returning(annotation, value))
    assert await read(app, "library://books") == [{"uri": "library://books"} | contents]


async def test_the_declared_type_is_said_of_what_does_not_say_it() -> None:
    assert (await read(resource(returning(bytes, b""), mime_type="image/png"), "library://books"))[0]["mimeType"] == (
        "image/png"
    )


async def test_contents_stay_what_they_are() -> None:
    parts = [
        TextResourceContents(uri="library://a", text="a"),
        BlobResourceContents(uri="library://b", blob="AA==", mime_type="image/png"),
    ]
    app = resource(returning(list[TextResourceContents | BlobResourceContents], parts))
    assert await read(app, "library://books") == [
        {"uri": "library://a", "text": "a"},
        {"uri": "library://b", "blob": "AA==", "mimeType": "image/png"},
    ]


@pytest.mark.parametrize("value", [float("nan"), object()])
async def test_what_is_no_json_is_an_error_for_the_operator(value: Any) -> None:
    with pytest.raises(OutputError):
        await read(resource(returning(Any, value)), "library://books")


@pytest.mark.rule("M42")
async def test_none_is_that_there_is_nothing() -> None:
    with pytest.raises(NotFound):
        await read(resource(returning(Book | None, None)), "library://books")


@pytest.mark.rule("M42")
async def test_an_empty_list_of_contents_is_that_there_is_nothing() -> None:
    with pytest.raises(NotFound):
        await read(resource(returning(list[TextResourceContents], [])), "library://books")


@pytest.mark.rule("M43")
async def test_a_blob_is_base64() -> None:
    with pytest.raises(OutputError, match="Base64"):
        await read(resource(returning(Any, BlobResourceContents(uri="library://b", blob="x"))), "library://books")


@pytest.mark.rule("M42")
async def test_variables_are_parsed_to_their_types() -> None:
    seen: list[Any] = []

    def book(number: int, day: dt.date, ctx: Context) -> str:
        seen.extend([number, day, ctx is not None])
        return "read"

    app = resource(book, "library://books/{number}/{day}")
    assert (await read(app, "library://books/7/2026-01-31"))[0]["uri"] == "library://books/7/2026-01-31"
    assert seen == [7, dt.date(2026, 1, 31), True]


@pytest.mark.rule("M42")
@pytest.mark.parametrize("uri", ["library://books/one", "library://books/", "library://books/1/2", "other://books/1"])
async def test_a_variable_that_does_not_parse_is_not_found_and_no_handler_runs(uri: str) -> None:
    ran = []

    async def book(number: int) -> str:
        ran.append(number)
        return "read"

    with pytest.raises(NotFound):
        await read(resource(book, "library://books/{number}"), uri)
    assert ran == []


@pytest.mark.rule("M43")
@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("file:///srv/{+path}", "file:///srv/../etc/passwd"),
        ("file:///srv/{+path}", "file:///srv/%2e%2e/etc/passwd"),
        ("file:///srv/{+path}", "file:///srv/a/..%2Fb"),
        ("file:///srv/{+path}", "file:///srv//etc/passwd"),
        ("file:///srv/{path}", "file:///srv/%2Fetc"),
        ("file:///srv/{path}", "file:///srv/..%5Cetc"),
        ("file:///srv/{path}", "file:///srv/C:%5Cetc"),
        ("notes://{path}", "notes://..%2Fsecrets"),
    ],
)
async def test_no_value_leads_out_of_its_folder(template: str, uri: str) -> None:
    async def handler(path: str) -> str:
        return path

    with pytest.raises(NotFound):
        await read(resource(handler, template), uri)


@pytest.mark.rule("M43")
async def test_a_path_below_the_folder_is_fine() -> None:
    async def handler(path: str) -> str:
        return path

    app = resource(handler, "file:///srv/{+path}")
    assert (await read(app, "file:///srv/a/b..c"))[0]["text"] == "a/b..c"


async def plain() -> str:
    return ""


async def numbered(number: int) -> str:
    return str(number)


@pytest.mark.rule("M43")
@pytest.mark.parametrize(
    ("handler", "uri", "options", "why"),
    [
        pytest.param(plain, "books", {}, "absolute", id="no scheme"),
        pytest.param(plain, "library://a b", {}, "absolute", id="a space"),
        pytest.param(plain, "Library://books", {}, "small letters", id="scheme"),
        pytest.param(plain, "library://Books", {}, "small letters", id="host"),
        pytest.param(plain, "library://books/%2e", {}, "normalized", id="encoded needlessly"),
        pytest.param(plain, "library://books/a/../b", {}, r"\.\.", id="dots"),
        pytest.param(numbered, "library://books", {}, "not a variable", id="a parameter without a variable"),
        pytest.param(numbered, "library://books/{book}", {}, "no such parameter", id="a variable without a parameter"),
        pytest.param(numbered, "library://books/{number*}", {}, r"\{\+name\}", id="another expression"),
        pytest.param(numbered, "{number}://books", {}, "scheme", id="a variable scheme"),
        pytest.param(numbered, "library://{number}", {"size": 5}, "size", id="a template with a size"),
        pytest.param(plain, "library://books", {"ttl": -1}, "ttl", id="ttl"),
        pytest.param(plain, "library://books", {"icons": [Icon(src="http://x/")]}, "https", id="M28"),
        pytest.param(plain, "library://books", {"only_for": ["acme"]}, "only_for", id="only_for"),
    ],
)
def test_a_bad_declaration_is_refused_and_named(
    handler: Callable[..., Any], uri: str, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(DeclarationError, match=why) as caught:
        resource(handler, uri, **options)
    assert caught.value.site is not None


@pytest.mark.rule("M43")
def test_https_is_warned_of() -> None:
    with pytest.warns(DeclarationWarning, match="https"):
        resource(plain, "https://example.com/books")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resource(plain, "library://books")


def test_a_uri_is_declared_once() -> None:
    app = resource(plain)
    with pytest.raises(DeclarationError, match="taken by"):
        app.resource("library://books")(plain)


def test_without_its_parentheses_the_decorator_says_so() -> None:
    app = App("test", version="1")
    for decorator in (app.resource, app.prompt, app.resources):
        with pytest.raises(DeclarationError, match="parentheses"):
            decorator(plain)  # type: ignore[arg-type]
