"""The application of the tests of tasks that outlive processes: it notes each run and each step in a file."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
from pydantic import BaseModel

from mcpfleet.app import App, Context

app = App("works", version="1")
NOTES = Path(os.environ.get("TASKS_NOTES", os.devnull))


class Agreed(BaseModel):
    """What is asked."""

    yes: bool


def note(what: str) -> None:
    """Append a line, which is whole whichever process dies."""
    with NOTES.open("a") as notes:
        notes.write(f"{what} {os.getpid()}\n")


def loaded(part: str) -> str:
    """A step that leaves a trace."""
    note(f"step {part}")
    return part.upper()


@app.tool(task="required")
async def work(seconds: float, ctx: Context) -> str:
    """Do a step, and then take a while."""
    note("run")
    first = await ctx.step("load", loaded, "a")
    await ctx.progress(1, total=2, message="loaded")
    await anyio.sleep(seconds)
    return f"{first} done"


@app.tool(task="required", asks={"elicitation.form"})
async def ask(ctx: Context) -> str:
    """Ask, after a step."""
    note("run")
    first = await ctx.step("load", loaded, "a")
    answer = await ctx.elicit("Go on?", Agreed, key="go")
    return f"{first} {answer.yes}"
