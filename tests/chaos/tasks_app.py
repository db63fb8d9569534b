"""The application of the chaos programs of tasks: a task whose step has an effect, which the called system counts."""

from __future__ import annotations

import os
import time
from pathlib import Path

import anyio

from mcpfleet.app import App, Context

app = App("chaos-tasks", version="1.0.0")
NOTES = Path(os.environ["CHAOS_EFFECTS"])


def note(what: str, number: int, key: str | None) -> None:
    """Add a line, whole, to the file that all workers share."""
    with NOTES.open("a") as notes:
        notes.write(f"{what} {number} {key} {os.getpid()} {time.time():.3f}\n")


@app.tool(task="required", idempotency_key="request")
async def work(number: int, seconds: float, request: str, ctx: Context) -> int:
    """Have an effect in a step, under the step's key, and take a while before and after it."""
    note("run", number, None)
    await anyio.sleep(seconds / 2)

    async def effect(value: int) -> int:
        note("effect", value, ctx.step_key)
        return 2 * value

    doubled = await ctx.step("effect", effect, number)
    await anyio.sleep(seconds / 2)
    return doubled


@app.tool(task="required")
async def plain(number: int, seconds: float) -> int:
    """Take a while, without a step and without a word."""
    note("run", number, None)
    await anyio.sleep(seconds)
    return 2 * number


@app.tool(task="required")
async def slow(number: int, seconds: float, ctx: Context) -> int:
    """Take a while, and then have an effect in a step, which is an async function."""
    note("run", number, None)
    await anyio.sleep(seconds)

    async def effect(value: int) -> int:
        note("effect", value, ctx.step_key)
        return 2 * value

    return await ctx.step("effect", effect, number)


@app.tool(task="required")
def blocking(number: int, seconds: float, ctx: Context) -> int:
    """The same in a thread, as plain functions."""
    note("run", number, None)
    time.sleep(seconds)

    def effect(value: int) -> int:
        note("effect", value, None)
        return 2 * value

    return ctx.sync.step("effect", effect, number)
