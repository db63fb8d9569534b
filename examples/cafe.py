"""A café whose texts are English and German: `mcpfleet dev examples/cafe.py`.

`mcpfleet messages examples/cafe.py -o examples/locale/cafe.pot` writes the template of its texts. The German file is
`locale/de/LC_MESSAGES/cafe.po`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from mcpfleet.app import App, Context, ToolError

CAKES = {"apple": 4, "plum": 1}

app = App("cafe", title="The café", version="1.0.0")
app.languages("locale", default="en", domain="cafe")


class Order(BaseModel):
    """A guest's answer to the waiter."""

    pieces: Annotated[int, Field(title="Pieces", ge=1, le=12)]
    cream: Annotated[Literal["with", "without"], Field(title="Cream")] = "with"


@app.tool(title="What is left")
async def left(cake: str, ctx: Context) -> str:
    """Say how many pieces of a cake are left.

    Args:
        cake: the cake, such as apple or plum.
    """
    if cake not in CAKES:
        raise ToolError(ctx.t("There is no {cake} cake today.", cake=cake))
    return ctx.t("{n} piece is left.", "{n} pieces are left.", n=CAKES[cake])


@app.tool(title="Order a cake")
async def order(cake: str, ctx: Context) -> str:
    """Order a cake for a guest, who says how many pieces."""
    wanted = await ctx.elicit("How would you like your cake?", Order)
    await ctx.progress(1, message=ctx.t("The kitchen knows."))
    return ctx.t("{n} piece of {cake} cake.", "{n} pieces of {cake} cake.", n=wanted.pieces, cake=cake)
