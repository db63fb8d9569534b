"""An application that is upgraded: each version adds, removes and changes a tool."""

from __future__ import annotations

from pathlib import Path
from typing import Final

APP: Final = '''
"""Version {version} of an application that is upgraded."""

import anyio

from mcpfleet.app import App, Context

app = App("shop", version="{version}")


@app.tool()
async def same(number: int, ctx: Context) -> int:
    """Is the same in all versions, and takes a while."""
    await ctx.progress(1, total=2)
    await anyio.sleep(0.05)
    return number


@app.tool()
async def touch(ctx: Context) -> str:
    """Change what is watched."""
    await ctx.resource_updated("shop://stock")
    return "touched"


@app.tool()
async def changed({parameter}: int) -> int:
    """Takes another parameter in each version."""
    return {parameter}


@app.tool()
async def only_in_{name}() -> str:
    """Comes and goes."""
    return "{version}"


def doubled(number: int) -> int:
    return 2 * number


@app.tool(task="required")
async def order(number: int, ctx: Context) -> str:
    """Is a task, whose worker may leave before it ends."""
    twice = await ctx.step("double", doubled, number)
    await anyio.sleep(1.0)
    return f"ordered {{twice}}"


@app.resource("shop://stock")
async def stock() -> str:
    """The installed files."""
    return "much"


@app.prompt()
def advertise(what: str) -> str:
    """Praise something."""
    return f"Buy {{what}}"
'''


def write(folder: Path, version: int) -> Path:
    """Write a version of it."""
    path = folder / f"shop_{version}.py"
    path.write_text(APP.format(version=f"{version}.0.0", parameter=f"argument_{version}", name=version))
    return path
