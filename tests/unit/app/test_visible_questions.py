"""Questions that a handler's own code shows are declared without `asks` (D16)."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp_types import Tool as WireTool

from mcpfleet.app import App, ClientLacks, Context, DeclarationError, Resource, question

FORM = {"type": "object", "properties": {"city": {"type": "string"}}}
WHERE = question.form("Where?", FORM)
TOOLS: list[WireTool] = []


async def form(ctx: Context) -> None:
    await ctx.elicit("Where?", FORM)


async def page(ctx: Context) -> None:
    await ctx.elicit_url("Pay", "https://example.com/")


async def model(ctx: Context) -> None:
    await ctx.sample("Hi", max_tokens=1)


async def model_with_tools(ctx: Context) -> None:
    await ctx.sample("Hi", max_tokens=1, tools=TOOLS)


async def directories(ctx: Context) -> None:
    await ctx.roots()


async def several(ctx: Context) -> None:
    await ctx.ask(WHERE, question.roots(), question.sample("Hi", max_tokens=1))


def plain(ctx: Context) -> None:
    ctx.sync.elicit("Where?", FORM)


def by_another_name(call: Context) -> None:
    sync = call.sync
    sync.roots()


async def nested(ctx: Context) -> None:
    async def where() -> None:
        await ctx.elicit("Where?", FORM)

    await where()


async def in_a_lambda(ctx: Context) -> None:
    later: Callable[[], Awaitable[Any]] = lambda: ctx.roots()  # noqa: E731, PLW0108
    await later()


async def guarded(ctx: Context) -> None:
    if ctx.can_ask("sampling"):
        await ctx.sample("Hi", max_tokens=1)
    await ctx.elicit("Where?", FORM)


async def caught(ctx: Context) -> None:
    try:
        await ctx.roots()
    except ClientLacks:
        await ctx.progress(1)


async def of_another_thing(ctx: Context, elicit: str) -> str:
    await ctx.progress(1)
    return elicit.strip() + str(WHERE.key)


async def elsewhere(ctx: Context) -> None:
    await form(ctx)


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*arguments: Any, **named: Any) -> Any:
        return await function(*arguments, **named)

    return wrapper


SHOWN: list[tuple[Callable[..., Any], set[str], set[str]]] = [
    (form, {"elicitation.form"}, set()),
    (page, {"elicitation.url"}, set()),
    (model, {"sampling"}, set()),
    (model_with_tools, {"sampling.tools"}, set()),
    (directories, {"roots"}, set()),
    (several, {"elicitation.form", "roots", "sampling"}, set()),
    (plain, {"elicitation.form"}, set()),
    (by_another_name, {"roots"}, set()),
    (nested, {"elicitation.form"}, set()),
    (in_a_lambda, {"roots"}, set()),
    (decorated(form), {"elicitation.form"}, set()),
    (guarded, {"elicitation.form"}, {"sampling"}),
    (caught, set(), {"roots"}),
    (of_another_thing, set(), set()),
    (elsewhere, set(), set()),
]


@pytest.mark.rule("D16")
@pytest.mark.parametrize(("handler", "asks", "may_ask"), SHOWN, ids=lambda each: getattr(each, "__name__", ""))
def test_a_declaration_has_the_questions_of_its_own_code(
    handler: Callable[..., Any], asks: set[str], may_ask: set[str]
) -> None:
    app = App("test", version="1")
    app.tool("it")(handler)
    definition = app.tools["it"].definition
    assert (set(definition.asks), set(definition.may_ask)) == (asks, may_ask)


@pytest.mark.rule("D16")
def test_what_the_author_says_of_a_question_stays() -> None:
    app = App("test", version="1")
    app.tool(may_ask={"elicitation.form"})(form)
    app.tool(asks={"sampling.tools"})(model)
    app.tool("other", asks={"roots"})(form)
    assert app.tools["form"].definition.may_ask == ("elicitation.form",)
    assert app.tools["form"].definition.asks == ()
    assert app.tools["model"].definition.asks == ("sampling.tools",)
    assert app.tools["other"].definition.asks == ("elicitation.form", "roots")


@pytest.mark.rule("D16")
def test_prompts_and_resources_ask_as_tools_do() -> None:
    app = App("test", version="1")

    @app.prompt()
    async def prompt(ctx: Context) -> str:
        return str(await ctx.elicit("Where?", FORM))

    @app.resource("test://x")
    async def resource(ctx: Context) -> str:
        return str(await ctx.roots())

    assert app.prompts["prompt"].definition.asks == ("elicitation.form",)
    assert app.reads["test://x"].definition.asks == ("roots",)


@pytest.mark.rule("M50")
def test_a_list_that_asks_is_refused_at_its_declaration() -> None:
    app = App("test", version="1")
    with pytest.raises(DeclarationError, match="a list asks nothing"):

        @app.resources()
        async def everything(ctx: Context) -> list[Resource]:
            await ctx.roots()
            return []


@pytest.mark.rule("D16")
def test_code_without_a_source_shows_nothing() -> None:
    made: dict[str, Any] = {"Context": Context, "FORM": FORM}
    exec("async def unseen(ctx: Context):\n    await ctx.elicit('Where?', FORM)", made)
    app = App("test", version="1")
    app.tool()(made["unseen"])
    assert app.tools["unseen"].definition.asks == ()
