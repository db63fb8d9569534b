"""The application of the tests of commands: its tools ask, and give every kind of result."""

import datetime as dt
from typing import Annotated, Literal

import anyio
from mcp_types import ImageContent
from pydantic import BaseModel, Field

from mcpfleet.app import App, Context, ToolError, question

app = App("shop", version="1.0.0")


class Delivery(BaseModel):
    """Where something goes."""

    city: Annotated[str, Field(min_length=2, description="Where it goes.")]
    size: Literal["small", "large"]
    count: Annotated[int, Field(ge=1, le=9)] = 1
    gift: bool = False


class Card(BaseModel):
    """What stands on a card."""

    words: str = "no words"


@app.tool(asks={"elicitation.form"})
async def buy(item: int, ctx: Context, before: dt.date | None = None, tags: list[str] | None = None) -> list[str]:
    """Buy something."""
    to = await ctx.elicit("Where shall it go?", Delivery, key="delivery")
    return [f"{to.count} {to.size} {item} to {to.city}", f"gift: {to.gift}", f"before: {before}", *(tags or [])]


@app.tool(asks={"elicitation.form"})
async def gift(ctx: Context) -> str:
    """Wrap a gift: two forms in one round."""
    where, card = await ctx.ask(
        question.form("Where shall it go?", Delivery, key="delivery"),
        question.form("What shall the card say?", Card, key="card"),
    )
    return f"{where.city}: {card.words}"


@app.tool(asks={"elicitation.url"})
async def pay(ctx: Context) -> str:
    """Have a page opened."""
    await ctx.elicit_url("Pay here", "https://pay.example.com/1", key="page")
    return "paid"


@app.tool()
async def shout(ctx: Context) -> str:
    """Report what a terminal must not take."""
    await ctx.progress(1, 3, "\x1b]0;owned\x07")
    await ctx.progress(float("1e300"), 1e301, "loud")
    await anyio.sleep(1.0)  # a bar is drawn some times a second
    return "shouted"


@app.tool(asks={"sampling"})
async def think(ctx: Context) -> str:
    """Ask a model."""
    return str(await ctx.sample("Say something", max_tokens=10, key="said"))


@app.tool()
async def ship(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Ship to a region, which proxies read in a header."""
    return f"shipped to {region}"


@app.tool()
async def picture() -> ImageContent:
    """Draw."""
    return ImageContent(type="image", data="AAAA", mime_type="image/png")


@app.tool()
async def fail() -> str:
    """Fail."""
    raise ToolError("sold out")


@app.tool(task="required", asks={"elicitation.form"})
async def statement(account: str, ctx: Context) -> str:
    """Make a statement, which takes its time."""
    to = await ctx.elicit("Where shall it go?", Delivery, key="delivery")
    return f"{account} to {to.city}"


@app.resource("shop://terms")
async def terms() -> str:
    """The terms of the shop."""
    return "Pay first.\nNo returns."


@app.prompt()
async def review(title: str, tone: str = "kind") -> str:
    """Have something reviewed."""
    return f"Review {title}, be {tone}."


@app.completion(review, "tone")
async def tones(typed: str) -> list[str]:
    """The tones that there are."""
    return [tone for tone in ("kind", "keen", "harsh") if tone.startswith(typed)]
