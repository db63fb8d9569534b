"""Handlers that return MCP's own results, which are the results then (K22)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import anyio
import pytest
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    CompleteResult,
    Completion,
    ContentBlock,
    GetPromptResult,
    InputRequiredResult,
    ListResourcesResult,
    PromptMessage,
    ReadResourceResult,
    Resource,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel
from pydantic_core import to_json

from mcpfleet.app import ABSENT, App, Context, Outcome, OutputError, Request, Tool, content
from mcpfleet.app.result import Returns
from mcpfleet.contracts.task_payloads import write_kept

Declare = Callable[..., Tool]
Call = Callable[..., Awaitable[Outcome]]
TEXT = TextContent(text="no paper", meta={"com.example/n": 1})
BLOCKS: list[ContentBlock] = [
    TEXT,
    content.image(b"\x89PNG", "image/png"),
    content.resource("a://b", "x"),
    content.link("a://c", "c"),
]
ASKS = InputRequiredResult(request_state="x")


class Book(BaseModel):
    title: str


class Ours(CallToolResult):
    """A subclass, as a library may have one."""


def returning(annotation: Any, value: Any) -> Callable[[], Any]:
    def handler() -> Any:
        return value

    handler.__annotations__["return"] = annotation
    return handler


@pytest.mark.rule("K22")
@pytest.mark.parametrize(
    "annotation",
    [CallToolResult, CallToolResult | None, Annotated[CallToolResult, "x"], Ours, Any, str | CallToolResult],
)
async def test_a_tools_own_result_is_passed_on_as_it_is(call: Call, declare: Declare, annotation: Any) -> None:
    result = Ours(content=BLOCKS, structured_content={"a": [None]}, is_error=True, meta={"com.example/m": {"b": 1}})
    handler = returning(annotation, result)
    outcome = await call(handler)
    assert list(outcome.content) == BLOCKS
    assert (outcome.structured, outcome.is_error) == ({"a": [None]}, True)
    assert outcome.meta == {"com.example/m": {"b": 1}}
    assert outcome.fields()["content"][0]["_meta"] == {"com.example/n": 1}
    assert "outputSchema" not in declare(handler).definition.wire


@pytest.mark.rule("K22")
async def test_an_own_result_without_structured_content_has_none(call: Call) -> None:
    outcome = await call(returning(CallToolResult, CallToolResult(content=[TEXT], structured_content=None)))
    assert outcome.structured is ABSENT
    assert not outcome.is_error


@pytest.mark.rule("K22")
async def test_an_own_result_is_checked_by_the_output_schema_unless_it_is_an_error(call: Call) -> None:
    schema = {"type": "object", "required": ["title"]}

    async def give(**members: Any) -> Outcome:
        result = CallToolResult(content=members.pop("content", []), **members)
        return await call(returning(CallToolResult, result), output_schema=schema)

    assert (await give(structured_content={"title": "Emma"})).content == (TextContent(text='{"title":"Emma"}'),)
    for wrong in ({"structured_content": {"name": "Emma"}}, {"content": [TEXT]}):
        with pytest.raises(OutputError):
            await give(**wrong)
        assert (await give(**wrong, is_error=True)).is_error


@pytest.mark.rule("K22")
async def test_data_and_own_results_may_come_from_one_tool(call: Call) -> None:
    """The annotation of the data alone keeps its schema; an own result is checked by it."""
    handler = returning(Book, CallToolResult(content=[TEXT], is_error=True))
    assert (await call(handler)).is_error
    good = await call(returning(Book, CallToolResult(content=[TEXT], structured_content={"title": "Emma"})))
    assert good.structured == {"title": "Emma"}
    with pytest.raises(OutputError):
        await call(returning(Book, CallToolResult(content=[TEXT], structured_content={"name": "Emma"})))


@pytest.mark.rule("K22")
@pytest.mark.parametrize("annotation", [Any, CallToolResult, CallToolResult | InputRequiredResult, Book])
async def test_a_result_that_is_no_end_is_no_success_with_an_object_as_data(call: Call, annotation: Any) -> None:
    with pytest.raises(OutputError, match="InputRequiredResult: ask with"):
        await call(returning(annotation, ASKS))
    with pytest.raises(OutputError, match="not complete"):
        await call(returning(annotation, CallToolResult(content=[], result_type="input_required")))


@pytest.mark.rule("K22")
async def test_content_that_is_none_is_not_dropped_without_a_word(call: Call) -> None:
    with pytest.raises(OutputError, match="content"):
        await call(returning(Outcome, Outcome([{"type": "text", "text": "x"}])))  # type: ignore[list-item]  # that is it
    wrong = CallToolResult.model_construct(content=[7])  # type: ignore[list-item]  # so is this
    with pytest.raises(OutputError, match="content"):
        await call(returning(CallToolResult, wrong))


@pytest.mark.rule("K22")
def test_a_task_keeps_an_own_result_for_its_sanitizer_as_one() -> None:
    returns = Returns(CallToolResult, None)
    value = CallToolResult(content=BLOCKS, structured_content={"a": 1}, is_error=True, meta={"com.example/m": 1})
    kept = returns.kept(value)
    body = write_kept(kept.shape, to_json({**kept.fields(), "_meta": kept.outcome.meta}))
    assert returns.read_back(body) == value


async def answer(app: App, request: Request) -> Any:
    [handler] = app.handlers
    return await handler.answer(request, Context(), threads=anyio.CapacityLimiter(1))


@pytest.mark.rule("K22")
async def test_a_prompts_own_result_is_passed_on_as_it_is() -> None:
    app = App("test", version="1")
    message = PromptMessage(role="assistant", content=TEXT)
    app.prompt(name="p")(
        returning(GetPromptResult, GetPromptResult(description="d", messages=[message], meta={"com.example/m": 1}))
    )
    told = await answer(app, Request())
    assert (told.fields()["description"], told.meta) == ("d", {"com.example/m": 1})
    assert told.fields()["messages"][0]["role"] == "assistant"


@pytest.mark.rule("K22")
@pytest.mark.parametrize("annotation", [ReadResourceResult, ReadResourceResult | None, Any, str | ReadResourceResult])
async def test_a_resources_own_result_is_passed_on_as_it_is(annotation: Any) -> None:
    app = App("test", version="1")
    parts: list[TextResourceContents | BlobResourceContents] = [
        TextResourceContents(uri="library://b", text="x", meta={"com.example/n": 1}),
        TextResourceContents(uri="library://c", text="y"),
    ]
    result = ReadResourceResult(contents=parts, meta={"com.example/m": 1})
    app.resource("library://b")(returning(annotation, result))
    told = await answer(app, Request(uri="library://b"))
    assert told.meta == {"com.example/m": 1}
    assert told.fields()["contents"] == [
        {"uri": "library://b", "text": "x", "_meta": {"com.example/n": 1}},
        {"uri": "library://c", "text": "y"},
    ]
    [handler] = app.handlers
    assert "mimeType" not in (handler.definition.wire or {}), "it says nothing of what is read"


@pytest.mark.rule("K22")
async def test_an_empty_resource_of_its_own_is_one() -> None:
    app = App("test", version="1")
    app.resource("library://b")(returning(ReadResourceResult, ReadResourceResult(contents=[])))
    assert (await answer(app, Request(uri="library://b"))).fields() == {"contents": []}


@pytest.mark.rule("K22")
@pytest.mark.parametrize("kind", ["prompt", "resource", "completion"])
async def test_other_handlers_refuse_a_result_that_is_no_end_too(kind: str) -> None:
    app = App("test", version="1")
    request = Request(uri="library://b")
    match kind:
        case "prompt":
            app.prompt(name="p")(returning(Any, ASKS))
        case "resource":
            app.resource("library://b")(returning(Any, ASKS))
        case "completion":
            request = completing(app, ASKS)
    with pytest.raises(OutputError, match="InputRequiredResult"):
        await answer(app, request)


@pytest.mark.rule("K29")
@pytest.mark.parametrize("kind", ["tool", "prompt", "resource", "completion"])
async def test_a_result_of_another_kind_of_handler_is_an_error_and_no_data(kind: str) -> None:
    failed = CallToolResult(content=[TEXT], is_error=True)
    foreign = GetPromptResult(messages=[]) if kind == "tool" else failed
    app = App("test", version="1")
    request = Request(uri="library://b")
    match kind:
        case "tool":
            app.tool(name="t")(returning(Any, foreign))
        case "prompt":
            app.prompt(name="p")(returning(Any, foreign))
        case "resource":
            app.resource("library://b")(returning(Any, foreign))
        case "completion":
            request = completing(app, foreign)
    with pytest.raises(OutputError, match=f"returned {type(foreign).__name__}, which belongs to another kind"):
        await answer(app, request)


class Completing(BaseModel):
    argument: str = "title"
    value: str = ""
    context: dict[str, str] = {}


def completing(app: App, value: Any) -> Request:
    """A prompt whose completer returns this, and the request that asks it."""

    @app.prompt()
    async def review(title: str) -> str:
        return title

    @app.completion(review, "title")
    async def titles(typed: str) -> Any:
        return value

    return Request(completing=Completing())


@pytest.mark.rule("K22")
async def test_a_completers_own_result_is_passed_on_as_it_is() -> None:
    app = App("test", version="1")
    result = CompleteResult(completion=Completion(values=["a"], total=7, has_more=True), meta={"com.example/m": 1})
    told = await answer(app, completing(app, result))
    assert told.fields() == {"completion": {"values": ["a"], "total": 7, "hasMore": True}}
    assert told.meta == {"com.example/m": 1}


@pytest.mark.rule("K22")
async def test_a_list_may_be_the_protocols_own() -> None:
    app = App("test", version="1")

    @app.resources()
    async def shelf(cursor: str | None = None) -> Any:
        return ListResourcesResult(resources=[Resource(uri="library://b", name="b")], next_cursor="2")

    told = (await answer(app, Request())).fields()
    assert (told["resources"][0]["uri"], told["nextCursor"]) == ("library://b", "2")
