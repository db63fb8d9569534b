"""The official client's view of an application's resources, prompts, completers, questions and log messages."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, PromptReference, ResourceTemplateReference, TextContent, TextResourceContents
from pydantic import BaseModel

from mcpfleet.app import App, Context, Invocation, Resource
from mcpfleet.app.handler import CallNext
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.app import text

BOOK = "library://books/{book}"


class Name(BaseModel):
    name: str


@pytest.fixture
def app() -> App:
    """A small library."""
    app = App("library", version="1")

    @app.resource(BOOK)
    def book(book: int) -> str | None:
        return {1: "Emma"}.get(book)

    @app.resources()
    async def shelf(cursor: str | None = None) -> list[Resource]:
        return [Resource(uri="library://books/1", name="emma")]

    @app.prompt()
    async def review(title: str, words: int = 100) -> str:
        return f"Review {title} in {words} words."

    @app.completion(review, "title")
    async def titles(typed: str, settled: dict[str, str]) -> list[str]:
        return [f"{typed}a", *settled.values()]

    @app.completion(BOOK, "book")
    async def numbers(typed: str) -> list[str]:
        return [f"{typed}1"]

    @app.tool(asks={"elicitation.form"})
    async def greet(ctx: Context) -> str:
        return (await ctx.elicit("Who are you?", Name, key="name")).name

    @app.tool(may_ask={"sampling"})
    async def think(ctx: Context) -> str:
        return str(await ctx.sample("Think", max_tokens=5))

    return app


@pytest.mark.rule("M42")
async def test_resources_are_listed_and_read(app: App) -> None:
    async with LocalFleet(app) as fleet, fleet.client() as client:
        assert [each.uri for each in (await client.list_resources()).resources] == ["library://books/1"]
        assert [each.uri_template for each in (await client.list_resource_templates()).resource_templates] == [BOOK]
        [read] = (await client.read_resource("library://books/1")).contents
        assert isinstance(read, TextResourceContents)
        assert (read.uri, read.text, read.mime_type) == ("library://books/1", "Emma", "text/plain")
        for uri in ("library://books/2", "library://books/one", "library://other"):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(uri)
            assert refused.value.error.code == -32602
            assert refused.value.error.data == {"uri": uri}


@pytest.mark.rule("M41")
async def test_prompts_are_listed_and_given(app: App) -> None:
    async with LocalFleet(app) as fleet, fleet.client() as client:
        [listed] = (await client.list_prompts()).prompts
        assert [(each.name, each.required) for each in listed.arguments or ()] == [("title", True), ("words", False)]
        [said] = (await client.get_prompt("review", {"title": "Emma", "words": "50"})).messages
        assert said.content == TextContent(text="Review Emma in 50 words.")
        with pytest.raises(MCPError, match="words") as refused:
            await client.get_prompt("review", {"title": "Emma", "words": "few"})
        assert refused.value.error.code == -32602


@pytest.mark.rule("M48")
async def test_arguments_and_variables_are_completed(app: App) -> None:
    async with LocalFleet(app) as fleet, fleet.client() as client:
        of_prompt = await client.complete(
            PromptReference(name="review"), {"name": "title", "value": "Emm"}, context_arguments={"words": "50"}
        )
        assert of_prompt.completion.values == ["Emma", "50"]
        of_template = await client.complete(ResourceTemplateReference(uri=BOOK), {"name": "book", "value": "2"})
        assert of_template.completion.values == ["21"]


@pytest.mark.rule("M50")
async def test_a_client_that_shows_forms_is_asked(app: App) -> None:
    async def fill_in(_context: Any, _params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "Ann"})

    async def decline(_context: Any, _params: Any) -> ElicitResult:
        return ElicitResult(action="decline")

    async with LocalFleet(app, edges=2) as fleet:
        async with fleet.client(1, elicitation_callback=fill_in) as client:
            assert text(await client.call_tool("greet", {})) == "Ann"
        async with fleet.client(0, elicitation_callback=decline) as client:
            declined = await client.call_tool("greet", {})
            assert declined.is_error is True
            assert "declined" in text(declined)


@pytest.mark.rule("D16")
async def test_a_client_that_cannot_be_asked_is_told_what_it_lacks(app: App) -> None:
    async with LocalFleet(app) as fleet, fleet.client() as client:
        for tool, lacks in (("greet", {"elicitation": {"form": {}}}), ("think", {"sampling": {}})):
            with pytest.raises(MCPError) as refused:
                await client.call_tool(tool, {})
            assert refused.value.error.code == -32021
            assert refused.value.error.data == {"requiredCapabilities": lacks}


async def test_an_interceptor_sees_what_clients_ask(app: App) -> None:
    seen: list[str] = []

    @app.interceptor
    async def note(invocation: Invocation, call_next: CallNext) -> Any:
        seen.append(invocation.kind)
        return await call_next(invocation)

    async with LocalFleet(app) as fleet, fleet.client() as client:
        await client.list_resources()
        await client.read_resource("library://books/1")
        await client.get_prompt("review", {"title": "Emma"})
    assert seen == ["lister", "template", "prompt"]
