"""The application that the vectors are for: its names and answers are part of them."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
from pydantic import Field

from mcpfleet.app import App, Context, ProtocolError, ToolError

app = App("vectors", version="1.0.0", instructions="Call what you like.")


@app.tool()
async def echo(text: str) -> str:
    """Return what came."""
    return text


@app.tool()
async def count(number: int) -> int:
    """Return the number that came."""
    return number


@app.tool()
async def null() -> None:
    """Return nothing."""


MIRRORED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        "shelf": {"type": "object", "properties": {"row": {"type": "integer", "x-mcp-header": "Row"}}},
    },
}


@app.tool(input_schema=MIRRORED)
async def mirror(arguments: dict[str, Any]) -> str:
    """Take arguments that stand in headers too."""
    return f"{len(arguments)} arguments"


@app.tool(asks={"elicitation.form", "sampling"})
async def ask(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "",
) -> str:
    """Say that it may ask, and ask nothing."""
    return region


@app.tool(scopes=["books:read", "books:write"])
async def lock() -> str:
    """Do what not everybody may, where callers have tokens."""
    return "locked"


@app.tool()
async def fail(why: str) -> str:
    """Raise what no client may read."""
    raise RuntimeError(why)


@app.tool()
async def refuse(why: str) -> str:
    """Raise what the model should read."""
    raise ToolError(why)


@app.tool()
async def decide(code: int) -> str:
    """Raise what the client's code should read."""
    raise ProtocolError(code, "The lift is broken", {"floor": 3})


@app.tool(name="break", output_schema={"type": "object", "required": ["never"]})
async def break_() -> dict[str, Any]:
    """Return what its own schema does not allow."""
    return {"other": 1}


@app.tool(timeout=0.2)
async def late(ctx: Context) -> str:
    """Take longer than it may."""
    await anyio.sleep(30)
    return "too late"


@app.prompt()
def greet(name: str, times: int = 1) -> str:
    """Greet somebody."""
    return f"Greet {name} {times} times."


@app.prompt()
def stumble() -> str:
    """Raise what no client may read."""
    raise RuntimeError("secret")


@app.completion(greet, "name")
async def names(typed: str) -> list[str]:
    """Offer the names that begin as the typed one does."""
    return [name for name in ("Ada", "Alan", "Grace") if name.startswith(typed)]


@app.resource("test://text")
def text() -> str:
    """Return a text."""
    return "A text."


@app.resource("test://stumble")
def trip() -> str:
    """Raise what no client may read."""
    raise RuntimeError("secret")


@app.resource("test://books/{book}")
def book(book: int) -> str:
    """Return a book."""
    return f"Book {book}."
