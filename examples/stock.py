"""An extension of your own: a method that reserves stock, and a notification that tells what has changed.

    mcpfleet dev examples/stock.py

The method is one POST. The header repeats the parameter that `name=` names, for proxies that route by it:

    curl http://127.0.0.1:8000/mcp -H 'content-type: application/json' \\
      -H 'accept: application/json, text/event-stream' -H 'mcp-protocol-version: 2026-07-28' \\
      -H 'mcp-method: stock/reserve' -H 'mcp-name: lamp' -d '{"jsonrpc": "2.0", "id": 1, "method": "stock/reserve",
        "params": {"sku": "lamp", "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
          "io.modelcontextprotocol/clientCapabilities": {"extensions": {"com.example/stock": {}}}}}}'
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pydantic import BaseModel, Field

from mcpfleet.app import App, Context, Extension, ProtocolError

app = App("stock", version="1.0.0", instructions="Look before you reserve: a reservation takes one piece.")
stock = Extension("com.example/stock", settings={"units": ["piece"]})
changed = stock.notification("notifications/stock/changed", filter="stockItems")
app.add(stock)

OUT_OF_STOCK = 4_090
"""The error's code: none of those that JSON-RPC keeps for itself."""
SHELF = Counter({"lamp": 3, "chair": 12})
"""Pieces by their article. Each worker has its own: a real one asks a database."""

Sku = Annotated[str, Field(min_length=1, max_length=64, description="The article's number.")]


class Reservation(BaseModel):
    """One reserved piece."""

    sku: str
    left: int
    """Pieces that are left."""


@stock.method("stock/reserve", name="sku", rate=(60, 60))
async def reserve(sku: Sku, ctx: Context) -> Reservation:
    """Reserve a piece, and tell those who listen to the article."""
    if not SHELF[sku]:
        raise ProtocolError(OUT_OF_STOCK, f"no {sku} is left")
    SHELF[sku] -= 1
    await ctx.tell(changed, sku)
    return Reservation(sku=sku, left=SHELF[sku])


@app.tool()
async def look(sku: Sku) -> int:
    """Return how many pieces of an article are left."""
    return SHELF[sku]
