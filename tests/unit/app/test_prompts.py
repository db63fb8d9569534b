"""Prompts: their arguments, their messages, and what completes them."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import Field

from mcpfleet.app import (
    App,
    Completion,
    Context,
    DeclarationError,
    InvalidArguments,
    OutputError,
    PromptMessage,
    Request,
    content,
    message,
)


async def get(app: App, **arguments: Any) -> Any:
    [prompt] = app.prompts.values()
    answer = await prompt.answer(Request(arguments), Context(), threads=anyio.CapacityLimiter(1))
    return answer.fields()["messages"]


def prompt(handler: Any, **options: Any) -> App:
    app = App("test", version="1")
    app.prompt(**options)(handler)
    return app


async def review(
    title: Annotated[str, Field(title="Title", description="The book's.")],
    words: int = 100,
    day: dt.date | None = None,
) -> str:
    """Review a book."""
    return f"{title!r} {words!r} {day!r}"


def test_a_prompt_is_announced_as_2026_07_28_lists_it() -> None:
    definition = prompt(review, title="Review").prompts["review"].definition
    assert definition.kind == "prompt"
    assert definition.wire == {
        "name": "review",
        "title": "Review",
        "description": "Review a book.",
        "arguments": [
            {"name": "title", "title": "Title", "description": "The book's.", "required": True},
            {"name": "words", "required": False},
            {"name": "day", "required": False},
        ],
    }


@pytest.mark.rule("M41")
async def test_arguments_are_parsed_to_their_types() -> None:
    [said] = await get(prompt(review), title="5", words="7", day="2026-01-31")
    assert said == {
        "role": "user",
        "content": {"type": "text", "text": "'5' 7 datetime.date(2026, 1, 31)"},
    }
    [said] = await get(prompt(review), title="Emma")
    assert said["content"]["text"] == "'Emma' 100 None"


@pytest.mark.rule("M41")
@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (bool, "true", True),
        (float, "0.5", 0.5),
        (Literal["a", "b"], "a", "a"),
        (list[int], "[1,2]", [1, 2]),
        (dict[str, int], '{"a":1}', {"a": 1}),
        (int | None, "5", 5),
    ],
)
async def test_what_has_no_text_of_its_own_is_json(annotation: Any, text: str, value: Any) -> None:
    seen = []

    async def handler(value):  # type: ignore[no-untyped-def]
        seen.append(value)
        return ""

    handler.__annotations__["value"] = annotation
    await get(prompt(handler), value=text)
    assert seen == [value]


@pytest.mark.rule("M41")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "title: is required"),
        ({"title": "Emma", "words": "secret"}, "words: must be integer$"),
        ({"title": "Emma", "day": "secret"}, "day: must be a date, such as 2026-01-31$"),
        ({"title": "Emma", "secret": "1"}, "may only have the members title, words, day"),
        ({"title": 5}, "title: must be string$"),
    ],
)
async def test_a_missing_or_bad_argument_is_refused_without_its_value(arguments: Any, why: str) -> None:
    with pytest.raises(InvalidArguments, match=why) as caught:
        await get(prompt(review), **arguments)
    assert "secret" not in str(caught.value)


async def test_messages_are_texts_blocks_and_messages() -> None:
    async def handler() -> list[Any]:
        return ["a", content.image(b"x", "image/png"), message.assistant("b"), message.user("c")]

    said = await get(prompt(handler))
    assert [(each["role"], each["content"]["type"]) for each in said] == [
        ("user", "text"),
        ("user", "image"),
        ("assistant", "text"),
        ("user", "text"),
    ]


async def test_one_message_is_a_prompt_too() -> None:
    def handler() -> PromptMessage:
        return message.assistant(content.resource("a://b", "text"))

    [said] = await get(prompt(handler))
    assert said == {"role": "assistant", "content": {"type": "resource", "resource": {"uri": "a://b", "text": "text"}}}


async def test_what_is_no_message_is_an_error_for_the_operator() -> None:
    async def handler() -> Any:
        return 5

    with pytest.raises(OutputError, match="int"):
        await get(prompt(handler))


@pytest.mark.rule("M36")
def test_a_prompts_name_has_a_tools_form() -> None:
    with pytest.raises(DeclarationError, match="1 to 128"):
        prompt(review, name="no spaces")


def completed(app: App) -> Any:
    [prompt] = app.prompts.values()
    return prompt


async def complete(handler: Any, value: str, argument: str = "title", **context: str) -> Any:
    app = prompt(review)
    app.completion(review, argument)(handler)
    asked = Completing(argument, value, context)
    answer = await completed(app).answer(Request(completing=asked), Context(), threads=anyio.CapacityLimiter(1))
    return answer.fields()["completion"]


class Completing:
    """A question to a completer."""

    def __init__(self, argument: str, value: str, context: dict[str, str]) -> None:
        self.argument, self.value, self.context = argument, value, context


@pytest.mark.rule("M48")
async def test_a_completer_offers_values() -> None:
    async def titles(typed: str) -> list[str]:
        return [title for title in ("Emma", "Persuasion") if title.startswith(typed)]

    assert await complete(titles, "E") == {"values": ["Emma"]}


@pytest.mark.rule("M48")
async def test_a_completer_sees_what_is_settled_and_the_call() -> None:
    def titles(typed: str, settled: dict[str, str], ctx: Context) -> list[str]:
        return [typed, settled["words"], str(ctx.principal.subject)]

    assert await complete(titles, "E", words="7") == {"values": ["E", "7", "None"]}


@pytest.mark.rule("M48")
async def test_more_than_100_values_are_cut_and_said() -> None:
    async def titles(typed: str) -> list[str]:
        return [str(number) for number in range(150)]

    offered = await complete(titles, "")
    assert (len(offered["values"]), offered["total"], offered["hasMore"]) == (100, 150, True)


@pytest.mark.rule("M48")
async def test_a_completer_may_say_how_many_there_are() -> None:
    async def titles(typed: str) -> Completion:
        return Completion(values=["Emma"], total=7, has_more=True)

    assert await complete(titles, "") == {"values": ["Emma"], "total": 7, "hasMore": True}


@pytest.mark.rule("M48")
@pytest.mark.parametrize("value", [[1], "Emma"])
async def test_what_is_no_list_of_texts_is_an_error_for_the_operator(value: Any) -> None:
    async def titles(typed: str) -> Any:
        return value

    with pytest.raises(OutputError):
        await complete(titles, "")


@pytest.mark.rule("M48")
def test_the_definition_says_which_arguments_have_a_completer() -> None:
    app = prompt(review)
    before = completed(app).definition.digest
    app.completion("review", "title")(lambda typed: [])
    assert completed(app).definition.completes == ("title",)
    assert completed(app).definition.digest != before
    assert app.manifest().named[0].definition.completes == ("title",)


@pytest.mark.rule("M48")
async def test_a_templates_variable_is_completed_by_its_text_or_function() -> None:
    app = App("test", version="1")

    @app.resource("library://books/{book}/{page}")
    async def page(book: int, page: int) -> str:
        return f"{book} {page}"

    app.completion(page, "book")(lambda typed: ["1"])
    app.completion("library://books/{book}/{page}", "page")(lambda typed: ["2"])
    [handler] = app.handlers
    assert handler.definition.completes == ("book", "page")
    asked = Completing("page", "", {})
    assert (await handler.answer(Request(completing=asked), Context())).fields() == {"completion": {"values": ["2"]}}


@pytest.mark.rule("M48")
async def test_an_argument_without_completer_is_refused() -> None:
    with pytest.raises(InvalidArguments):
        await completed(prompt(review)).answer(Request(completing=Completing("title", "", {})), Context())


async def titles(typed: str) -> list[str]:
    return []


async def number(typed: int) -> list[str]:
    return []


async def three(typed: str, settled: dict[str, str], more: str) -> list[str]:
    return []


@pytest.mark.rule("M48")
@pytest.mark.parametrize(
    ("of", "argument", "handler", "why"),
    [
        (review, "author", titles, "no argument 'author'.*'title'"),
        ("nothing", "title", titles, "neither a prompt nor a template"),
        (titles, "title", titles, "neither a prompt nor a template"),
        (review, "title", number, "str"),
        (review, "title", three, "takes the typed text"),
    ],
)
def test_a_completer_of_nothing_is_refused(of: Any, argument: str, handler: Any, why: str) -> None:
    app = prompt(review)
    with pytest.raises(DeclarationError, match=why):
        app.completion(of, argument)(handler)


@pytest.mark.rule("M48")
def test_an_argument_has_one_completer() -> None:
    app = prompt(review)
    app.completion(review, "title")(titles)
    with pytest.raises(DeclarationError, match="completed by"):
        app.completion(review, "title")(titles)
