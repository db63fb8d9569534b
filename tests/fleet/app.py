"""The application of the fleet tests: tools that leave traces which a test in another process can wait for."""

import os
import time
from pathlib import Path

import anyio

from mcpfleet.app import App, Context, ToolError

app = App("fleet-tests", version="1.0.0")


@app.tool()
async def add(left: int, right: int) -> int:
    """Add two integers."""
    return left + right


@app.tool()
async def whoami() -> int:
    """Name the process that answers."""
    return os.getpid()


@app.tool()
async def count(to: int, ctx: Context) -> str:
    """Report every step."""
    for step in range(to + 1):
        await ctx.progress(step, total=to, message=f"step {step}")
    return f"counted to {to}"


@app.tool()
async def hold(folder: str, ctx: Context) -> str:
    """Say in a folder that it runs, wait to be released, and say how it ended."""
    place = Path(folder)
    (place / "started").write_text(str(os.getpid()))
    await ctx.progress(1, message="holding")
    try:
        while not (place / "release").exists():  # noqa: ASYNC110  # the one who releases is another process
            await anyio.sleep(0.02)
    except BaseException:
        (place / "cancelled").touch()
        raise
    (place / "finished").touch()
    return "released"


@app.tool()
def hold_thread(folder: str, ctx: Context) -> str:
    """The same from a plain function, which looks for its cancel by itself."""
    place = Path(folder)
    (place / "started").write_text(str(os.getpid()))
    while not (place / "release").exists():
        if ctx.cancelled:
            (place / "cancelled").touch()
            return "cancelled"
        time.sleep(0.02)
    (place / "finished").touch()
    return "released"


@app.tool()
async def fail(secret: str) -> str:
    """Raise what no client may read."""
    raise RuntimeError(secret)


@app.tool()
async def refuse(why: str) -> str:
    """Raise what the model should read."""
    raise ToolError(why)


@app.tool(timeout=0.5)
async def dawdle(ctx: Context) -> str:
    """Take longer than it may, whatever it reports."""
    for step in range(1000):
        await ctx.progress(step)
        await anyio.sleep(0.05)
    return "too late"


@app.tool(on_disconnect="continue")
async def persist(folder: str) -> str:
    """Go on without a client."""
    place = Path(folder)
    (place / "started").touch()
    while not (place / "release").exists():  # noqa: ASYNC110  # the one who releases is another process
        await anyio.sleep(0.02)
    (place / "finished").touch()
    return "finished"


@app.tool()
async def echo(text: str) -> str:
    """Return what came."""
    return text


@app.tool()
async def repeat(text: str, times: int, ctx: Context) -> str:
    """Return much more than came, and say so."""
    await ctx.progress(1, message=text)
    return text * times
