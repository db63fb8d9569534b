"""The application of the benchmark of streams: a book, and a tool that says that it has changed."""

from mcpfleet.app import App, Context

app = App("fanout", version="1.0.0")


@app.resource("library://books/{book}")
async def book(book: int) -> str:
    """A book."""
    return f"book {book}"


@app.tool()
async def touch(ctx: Context) -> str:
    """Say that a book has changed."""
    await ctx.resource_updated("library://books/1")
    return "touched"
