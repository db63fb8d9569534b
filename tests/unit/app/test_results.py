"""A handler's return value becomes content, structured content, or an error of the contract."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, computed_field
from typing_extensions import TypedDict

from mcpfleet.app import (
    ABSENT,
    AudioContent,
    ContentBlock,
    DeclarationError,
    ImageContent,
    Outcome,
    OutputError,
    ResourceLink,
    TextContent,
    Tool,
    content,
)

Declare = Callable[..., Tool]
Call = Callable[..., Awaitable[Outcome]]

IMAGE = content.image(b"\x89PNG", "image/png")
TEXT = TextContent(text="hello")


class Book(BaseModel):
    title: str
    pages: int = 0

    @computed_field  # type: ignore[prop-decorator]  # pydantic's own pattern
    @property
    def is_long(self) -> bool:
        return self.pages > 500


@dataclass
class Hold:
    book: Book
    until: str | None = None


class Location(TypedDict):
    room: int


def returning(annotation: Any, value: Any) -> Callable[[], Awaitable[Any]]:
    async def handler() -> Any:
        return value

    handler.__annotations__["return"] = annotation
    return handler


@pytest.mark.parametrize(
    ("annotation", "value", "blocks"),
    [
        pytest.param(str, "hello", [TEXT], id="text"),
        pytest.param(str, "", [TextContent(text="")], id="empty text"),
        pytest.param(None, None, [], id="nothing"),
        pytest.param(ImageContent, IMAGE, [IMAGE], id="one block"),
        pytest.param(ContentBlock, IMAGE, [IMAGE], id="any block"),
        pytest.param(ImageContent | None, None, [], id="perhaps a block"),
        pytest.param(str | ImageContent, "hello", [TEXT], id="text or a block"),
        pytest.param(list[ContentBlock], [TEXT, IMAGE], [TEXT, IMAGE], id="list of blocks"),
        pytest.param(list[ContentBlock], [], [], id="empty list of blocks"),
        pytest.param(list[str | ImageContent], ["hello", IMAGE], [TEXT, IMAGE], id="list with text"),
        pytest.param(list[str | ImageContent], ["hello"], [TEXT], id="list that happens to have text alone"),
        pytest.param(tuple[str, ImageContent], ("hello", IMAGE), [TEXT, IMAGE], id="tuple"),
        pytest.param(tuple[ImageContent, ...], (IMAGE, IMAGE), [IMAGE, IMAGE], id="tuple of any length"),
        pytest.param(Annotated[str, Field(description="A greeting.")], "hello", [TEXT], id="annotated text"),
        pytest.param(Outcome | None, None, [], id="perhaps an outcome"),
        pytest.param(Any, "hello", [TEXT], id="anything: text"),
        pytest.param(Any, [TEXT, IMAGE], [TEXT, IMAGE], id="anything: blocks"),
        pytest.param(object, None, [], id="anything: nothing"),
    ],
)
async def test_text_and_blocks_are_content_without_a_schema(
    call: Call, declare: Declare, annotation: Any, value: Any, blocks: list[ContentBlock]
) -> None:
    outcome = await call(returning(annotation, value))
    assert list(outcome.content) == blocks
    assert outcome.structured is ABSENT
    assert "structuredContent" not in outcome.fields()
    assert "outputSchema" not in declare(returning(annotation, value)).definition.wire


@pytest.mark.rule("M38")
@pytest.mark.parametrize(
    ("annotation", "value", "structured", "text"),
    [
        pytest.param(int, 2**70, 2**70, str(2**70), id="large integer"),
        pytest.param(bool, False, False, "false", id="boolean"),
        pytest.param(str | None, None, None, "null", id="null"),
        pytest.param(str | None, "x", "x", '"x"', id="text or null"),
        pytest.param(Book | None, None, None, "null", id="no model"),
        pytest.param(list[str], ["a", "b"], ["a", "b"], '["a","b"]', id="list of texts"),
        pytest.param(dict[str, float], {"a": 0.5}, {"a": 0.5}, '{"a":0.5}', id="dict"),
        pytest.param(Location, {"room": 1}, {"room": 1}, '{"room":1}', id="TypedDict"),
        pytest.param(
            Book,
            Book(title="Emma", pages=512),
            {"title": "Emma", "pages": 512, "is_long": True},
            '{"title":"Emma","pages":512,"is_long":true}',
            id="model",
        ),
        pytest.param(
            list[Hold],
            [Hold(Book(title="Emma"))],
            [{"book": {"title": "Emma", "pages": 0, "is_long": False}, "until": None}],
            '[{"book":{"title":"Emma","pages":0,"is_long":false},"until":null}]',
            id="list of dataclasses",
        ),
        pytest.param(Any, {"a": [1]}, {"a": [1]}, '{"a":[1]}', id="anything: data"),
        pytest.param(Any, ["a"], ["a"], '["a"]', id="anything: a list of texts is data"),
        pytest.param(Any, Book(title="é"), {"title": "é", "pages": 0, "is_long": False}, None, id="anything: model"),
    ],
)
async def test_data_is_structured_and_repeated_as_text(
    call: Call, annotation: Any, value: Any, structured: Any, text: str | None
) -> None:
    outcome = await call(returning(annotation, value))
    assert outcome.structured == structured
    assert outcome.fields()["structuredContent"] == structured
    (block,) = outcome.content
    assert isinstance(block, TextContent)
    assert text is None or block.text == text


def test_the_return_annotation_gives_the_output_schema(declare: Declare) -> None:
    wire = declare(returning(list[Hold], [])).definition.wire
    assert wire["outputSchema"]["type"] == "array"
    assert wire["outputSchema"]["items"]["properties"]["book"]["required"] == ["title", "is_long"]


async def test_without_an_annotation_the_value_decides(call: Call, declare: Declare) -> None:
    def handler():  # type: ignore[no-untyped-def]
        return {"a": 1}

    assert (await call(handler)).structured == {"a": 1}
    assert "outputSchema" not in declare(handler).definition.wire


async def test_structured_false_sends_data_as_text_alone(call: Call, declare: Declare) -> None:
    outcome = await call(returning(Book, Book(title="Emma")), structured=False)
    assert outcome.structured is ABSENT
    assert [block.type for block in outcome.content] == ["text"]
    assert "outputSchema" not in declare(returning(Book, None), structured=False).definition.wire


@pytest.mark.rule("M39")
@pytest.mark.parametrize(
    ("annotation", "value", "match"),
    [
        pytest.param(int, "five", "must be integer", id="another type"),
        pytest.param(Book, {"pages": 1}, "title: is required", id="a member is missing"),
        pytest.param(Book, None, "must be object", id="null where none is declared"),
        pytest.param(list[int], [1, "x"], r"\[1\]: must be integer", id="inside"),
        pytest.param(Annotated[int, Field(ge=1)], 0, "at least 1", id="a bound"),
        pytest.param(float, math.nan, "JSON", id="NaN"),
        pytest.param(float | None, math.inf, "JSON", id="infinite"),
        pytest.param(Any, {"a": [math.nan]}, "JSON", id="NaN inside anything"),
        pytest.param(Any, object(), "JSON", id="an object that is no JSON"),
        pytest.param(Any, {"a": "\ud800"}, "JSON", id="a lone surrogate in data"),
        pytest.param(str, "\ud800", "surrogate", id="a lone surrogate in text"),
        pytest.param(TextContent, TextContent(text="\ud800"), "surrogate", id="a lone surrogate in a block"),
        pytest.param(str, 5, "int", id="a number for a text"),
        pytest.param(list[ContentBlock], [5], "list", id="no block"),
    ],
)
async def test_what_breaks_the_declaration_is_an_output_error(
    call: Call, annotation: Any, value: Any, match: str
) -> None:
    with pytest.raises(OutputError, match=match):
        await call(returning(annotation, value))


async def test_texts_that_only_look_like_nan_are_fine(call: Call) -> None:
    assert (await call(returning(list[str], ["NaN", "Infinity"]))).structured == ["NaN", "Infinity"]


async def test_data_that_contains_itself_is_an_output_error(call: Call) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(OutputError):
        await call(returning(Any, loop))


async def test_data_too_deep_to_check_is_an_output_error(call: Call) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(OutputError):
        await call(returning(list[Any], deep))


@pytest.mark.parametrize("annotation", [Book | ImageContent, list[Book | ImageContent], dict[str, int] | TextContent])
def test_content_and_data_do_not_mix_in_an_annotation(declare: Declare, annotation: Any) -> None:
    with pytest.raises(DeclarationError, match="Outcome") as caught:
        declare(returning(annotation, None))
    assert caught.value.parameter == "return"


async def test_an_outcome_holds_content_and_data(call: Call) -> None:
    outcome = await call(returning(Outcome, Outcome([IMAGE], structured=Book(title="Emma"), meta={"a.b/c": 1})))
    assert list(outcome.content) == [IMAGE]
    assert outcome.structured == {"title": "Emma", "pages": 0, "is_long": False}
    assert outcome.meta == {"a.b/c": 1}


async def test_an_outcome_without_content_repeats_its_data(call: Call) -> None:
    outcome = await call(returning(Outcome, Outcome(structured=None)))
    assert list(outcome.content) == [TextContent(text="null")]
    assert outcome.structured is None


@pytest.mark.rule("M39")
async def test_an_outcome_is_held_to_the_output_schema(call: Call) -> None:
    schema = {"type": "object", "required": ["a"]}
    with pytest.raises(OutputError, match="a: is required"):
        await call(returning(Outcome, Outcome(structured={})), output_schema=schema)
    with pytest.raises(OutputError, match="no structured content"):
        await call(returning(Outcome, Outcome([TEXT])), output_schema=schema)


@pytest.mark.rule("M39")
async def test_an_error_may_break_the_output_schema(call: Call) -> None:
    schema = {"type": "object", "required": ["a"]}
    plain = await call(returning(Outcome, Outcome([TEXT], is_error=True)), output_schema=schema)
    assert plain.fields() == {"content": [{"type": "text", "text": "hello"}], "isError": True}
    detailed = await call(returning(Outcome, Outcome(structured={"b": 1}, is_error=True)), output_schema=schema)
    assert detailed.structured == {"b": 1}


def test_blocks_are_written_as_the_wire_has_them() -> None:
    blocks: list[ContentBlock] = [
        IMAGE,
        content.audio(b"RIFF", "audio/wav"),
        content.resource("library://books/1", "Call me Ishmael.", "text/plain"),
        content.resource("library://covers/1", b"\x00"),
        content.link("library://books/2", "Emma", mime_type="text/plain"),
    ]
    assert Outcome(blocks).fields()["content"] == [
        {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {
            "type": "resource",
            "resource": {"uri": "library://books/1", "mimeType": "text/plain", "text": "Call me Ishmael."},
        },
        {"type": "resource", "resource": {"uri": "library://covers/1", "blob": "AA=="}},
        {"type": "resource_link", "uri": "library://books/2", "name": "Emma", "mimeType": "text/plain"},
    ]


@pytest.mark.parametrize("block", [AudioContent, ResourceLink])
def test_each_block_type_is_content(declare: Declare, block: type) -> None:
    assert "outputSchema" not in declare(returning(block, None)).definition.wire
