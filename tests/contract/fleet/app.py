"""The applications of these tests: handlers run in the test's process, and tests see what they did."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

import anyio
from mcp_types import CallToolResult, TextContent

from mcpfleet.app import App, Context, ToolError

BOOK = "library://books/1"
OTHER = "library://books/2"


def text(result: CallToolResult | None) -> str:
    """The text of a result."""
    assert result is not None
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


def is_uncertain(result: CallToolResult | None) -> bool:
    """Whether the model reads that nobody knows whether the call ran."""
    return result is not None and result.is_error is True and "uncertain" in text(result)


class ObservedApp:
    """An application, and what its handlers have done."""

    def __init__(self, version: str = "1.0.0") -> None:
        self.effects: Counter[str] = Counter()
        """How often `act` ran, by what it was called with."""
        self.threads: set[int] = set()
        """The threads that handlers ran on."""
        self.started: defaultdict[str, threading.Event] = defaultdict(threading.Event)
        """That `hold` runs, by its name."""
        self.released: defaultdict[str, threading.Event] = defaultdict(threading.Event)
        """Lets `hold` go on."""
        self.cancelled: set[str] = set()
        """The names of those that were stopped."""
        self.app = App("desk", version=version)
        for tool in (self.add, self.act, self.count, self.hold, self.refuse):
            self.app.tool()(tool)

    async def add(self, left: int, right: int) -> int:
        """Add two integers."""
        self.threads.add(threading.get_ident())
        return left + right

    async def act(self, token: str) -> str:
        """Have an effect."""
        self.effects[token] += 1
        await anyio.sleep(0.01)
        return token

    async def count(self, to: int, ctx: Context) -> str:
        """Report every step."""
        for step in range(to + 1):
            await ctx.progress(step, total=to)
        return f"counted to {to}"

    async def hold(self, name: str, ctx: Context) -> str:
        """Say that it runs, and wait to be released."""
        await ctx.progress(1)
        self.started[name].set()
        try:
            while not self.released[name].is_set():  # noqa: ASYNC110  # who releases is on another thread
                await anyio.sleep(0.005)
        except BaseException:
            self.cancelled.add(name)
            raise
        return "released"

    async def refuse(self, why: str) -> str:
        """Raise what the model should read."""
        raise ToolError(why)


def library() -> App:
    """An application whose books change when they are held."""
    app = App("library", version="1.0.0")

    @app.tool()
    async def place_hold(book: int, ctx: Context) -> str:
        """Change a book."""
        await ctx.resource_updated(f"library://books/{book}")
        return "held"

    @app.tool()
    def place_hold_plainly(book: int, ctx: Context) -> str:
        """Change a book from a thread."""
        ctx.sync.resource_updated(f"library://books/{book}")
        return "held"

    @app.resource("library://books/{book}")
    async def book(book: int) -> str:
        """A book."""
        return f"book {book}"

    @app.resource("library://catalog")
    async def shelf() -> str:
        """All books."""
        return "books"

    return app
