"""An application whose tool asks its caller three things, the third of which depends on the answers to the others."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mcpfleet.app import App, Context, question

app = App("asking", version="1.0.0")
STEPS = Path(os.environ["ASKING_STEPS"])


@dataclass
class Size:
    """How large it is to be."""

    size: Literal["small", "large"]


@dataclass
class Colour:
    """What colour it is to have."""

    name: str


@dataclass
class Words:
    """What is written on it."""

    text: str


def reserve(item: str) -> str:
    """Have an effect: each time it runs, a line."""
    with STEPS.open("a") as steps:
        steps.write(f"{item} by {os.getpid()}\n")
    return f"reserved {item}"


@app.tool(asks={"elicitation.form"})
async def order(item: str, ctx: Context) -> str:
    """Order something."""
    reserved = await ctx.step("reserve", reserve, item)
    size, colour = await ctx.ask(
        question.form("Which size?", Size, key="size"), question.form("Which colour?", Colour, key="colour")
    )
    words = await ctx.elicit(f"What is written on a {size.size} {colour.name} one?", Words, key=f"words-{size.size}")
    return f"{reserved}: {size.size}, {colour.name}, {words.text}"
