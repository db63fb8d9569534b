"""An application that asks its callers, says what it does, and changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final, Literal

import anyio
from pydantic import BaseModel, Field

from mcpfleet.app import App, Context, question
from mcpfleet.testing.local import LocalFleet

BOOK: Final = "library://books/1"


class Wish(BaseModel):
    """What a reader fills in."""

    copies: Annotated[int, Field(ge=1, le=9)]
    binding: Literal["soft", "hard"] = "soft"


def asking(stopped: list[str] | None = None, started: list[str] | None = None) -> App:
    """Make the application; its books are `library://books/{book}`.

    Args:
        stopped: gets the name of each handler that was stopped.
        started: gets the name of each that began.
    """
    app = App("library", version="1.0.0")

    @app.tool(asks={"elicitation.form"})
    async def order(title: str, ctx: Context) -> str:
        """Ask how many."""
        await ctx.progress(1)
        wish = await ctx.elicit(f"How many of {title}?", Wish)
        await ctx.progress(2)
        return f"{wish.copies} of {title}, {wish.binding}"

    @app.tool(asks={"elicitation.form", "sampling", "roots"})
    async def interview(ctx: Context) -> str:
        """Ask three things at once, and then another."""
        wish, said, roots = await ctx.ask(
            question.form("How many?", Wish, key="wish"),
            question.sample("Say something", max_tokens=10, key="said"),
            question.roots(key="roots"),
        )
        more = await ctx.elicit("How many more?", Wish)
        words = "".join(block.text for block in said.content_as_list if block.type == "text")
        return f"{wish.copies} {words} {len(roots)} {more.copies}"

    @app.tool(asks={"elicitation.url"})
    async def pay(ctx: Context) -> str:
        """Have a page opened."""
        await ctx.elicit_url("Pay here", "https://pay.example.com/1")
        return "paid"

    @app.tool()
    async def chat(ctx: Context) -> str:
        """Say what is done, at several levels."""
        await ctx.log("debug", "looking")
        await ctx.log("info", "found")
        await ctx.log("error", "lost")
        return "said"

    @app.tool()
    async def place_hold(book: int, ctx: Context) -> str:
        """Change a book."""
        await ctx.resource_updated(f"library://books/{book}")
        return "held"

    add_long_ones(app, [] if stopped is None else stopped, [] if started is None else started)

    @app.resource("library://books/{book}")
    async def book(book: int) -> str:
        """A book."""
        return f"book {book}"

    return app


def add_long_ones(app: App, stopped: list[str], started: list[str]) -> None:
    """Add tools that only end when they are stopped."""

    @app.tool(timeout=30)
    async def wait(ctx: Context) -> str:
        """Wait until it is stopped."""
        started.append("wait")
        await ctx.progress(1)
        try:
            await anyio.sleep(25)
        finally:
            stopped.append("wait")
        return "waited"

    @app.tool(idempotency_key="key", asks={"elicitation.form"})
    async def order_once(key: str, ctx: Context) -> str:
        """Ask how many, and do something once."""
        wish = await ctx.elicit("How many?", Wish)
        stopped.append(key)
        return str(wish.copies)

    @app.tool(idempotency_key="key", on_disconnect="cancel")
    async def reserve(key: str, ctx: Context) -> str:
        """Take long over something that is done once."""
        await ctx.progress(1)
        await anyio.sleep(25)
        return key


@asynccontextmanager
async def guarded(tokens: list[dict[str, str]], **settings: str) -> AsyncIterator[LocalFleet]:
    """A fleet of two edges that these tokens may use."""
    environment = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps({"tokens": tokens})}
    async with LocalFleet(asking(), edges=2, environment=environment | settings) as fleet:
        yield fleet
