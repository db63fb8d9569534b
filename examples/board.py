"""A shop's board: hosts with MCP Apps show the stock as a picture with buttons, and all others get the data as text.

`mcpfleet dev examples/board.py` serves it. The document is `board.html` beside this file: change it while it runs, and
a client that watches it hears of it within seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from mcpfleet.app import App, ToolAnnotations, ToolError

app = App(
    "board", version="1.0.0", title="The shop's board", instructions="Look at the stock before you promise goods."
)
board = app.ui("ui://board/stock", file="board.html", border=True, title="Stock")


@dataclass(frozen=True)
class Item:
    """An item of the shop."""

    name: str
    count: int
    least: int
    """So many are to be there at least."""


@dataclass(frozen=True)
class Stock:
    """All items, in the order of the shelves."""

    items: list[Item]


shelves = {
    item.name: item
    for item in (Item("Lamps", 14, 5), Item("Kettles", 3, 6), Item("Chairs", 9, 4), Item("Clocks", 0, 2))
}
"""A shop with several workers would keep this in a database."""


@app.tool(ui=board, annotations=ToolAnnotations(read_only_hint=True))
async def stock() -> Stock:
    """Tell how many of each item are in stock, and how many there must be at least."""
    return Stock(list(shelves.values()))


@app.tool(ui=board, visibility={"app"})
async def deliver(name: str, count: Annotated[int, Field(ge=1, le=100)] = 5) -> Stock:
    """Note a delivery, and return the stock after it. The board's buttons call this; no model sees it."""
    if name not in shelves:
        raise ToolError("There is no such item.")
    shelves[name] = replace(shelves[name], count=shelves[name].count + count)
    return await stock()
