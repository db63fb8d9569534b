"""The application behind the proxies: tools that leave traces to wait for, and a resource that changes."""

from pathlib import Path

import anyio

from mcpfleet.app import App, Context

app = App("behind-proxies", version="1.0.0")


@app.resource("shelf://books/{book}")
async def book(book: int) -> str:
    """A book."""
    return f"book {book}"


@app.tool()
async def touch(book: int, ctx: Context) -> str:
    """Say that a book has changed."""
    await ctx.resource_updated(f"shelf://books/{book}")
    return "touched"


@app.tool()
async def echo(text: str) -> str:
    """Return what came."""
    return text


@app.tool()
async def hold(folder: str, name: str, ctx: Context, silently: bool = False) -> str:
    """Write a line to a file at the start, wait for a release, and say how it ended."""
    place = Path(folder)
    with (place / name).open("a") as runs:
        runs.write("started\n")
    if not silently:
        await ctx.progress(1, message="holding")
    try:
        while not (place / "release").exists():  # noqa: ASYNC110  # the one who releases is another process
            await anyio.sleep(0.02)
    except BaseException:
        (place / f"{name}.cancelled").touch()
        raise
    return "released"
