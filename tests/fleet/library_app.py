"""The application of the tests of streams: a shelf whose books change."""

from threading import Timer

import anyio

from mcpfleet.app import App, Context

app = App("library", version="1.0.0")
titles = {1: "Emma", 2: "Persuasion"}
LONG = [f"library://long/{number:03}{'x' * 1900}" for number in range(200)]


@app.resource("library://books/{book}")
async def book(book: int) -> str:
    """A book's title."""
    return titles.get(book, "unknown")


@app.resource("library://long/{name}")
async def long(name: str) -> str:
    """Something with a long name."""
    return name


@app.tool()
async def rename(book: int, title: str, ctx: Context) -> str:
    """Rename a book."""
    titles[book] = title
    await ctx.resource_updated(f"library://books/{book}")
    return title


@app.tool()
async def come_in_later(book: int) -> str:
    """Have a book change once this call is over, on a thread that no call owns."""
    Timer(0.3, app.publish, [f"library://books/{book}"]).start()
    return "soon"


@app.tool(task="required")
async def bind(seconds: float) -> str:
    """Bind a book, which takes a while."""
    await anyio.sleep(seconds)
    return "bound"


@app.tool()
async def read_aloud(seconds: float) -> str:
    """Read from a book for a while."""
    await anyio.sleep(seconds)
    return "read"


@app.tool()
async def flood(ctx: Context) -> int:
    """Say of many long names that they have changed."""
    for uri in LONG:
        await ctx.resource_updated(uri)
    return len(LONG)


@app.tool()
async def grow(name: str) -> str:
    """Add a tool."""

    async def added() -> str:
        """Do nothing."""
        return name

    app.tool(name)(added)
    return name


@app.tool()
async def shrink(name: str) -> str:
    """Take a tool back."""
    app.remove("tool", name)
    return name
