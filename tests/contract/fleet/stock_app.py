"""An application with an extension of its own: methods, a notification, and settings that clients read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Final

import anyio
from pydantic import BaseModel

from mcpfleet.app import App, Context, Extension, ProtocolError
from mcpfleet.wire.protocol import MODERN
from tests.unit.edge.asgi import request

STOCK: Final = "com.example/stock"
CHANGED: Final = "notifications/stock/changed"
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_HEADERS: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class Reservation(BaseModel):
    """What was reserved, and for whom."""

    sku: str
    count: int
    subject: str | None = None


class Shop:
    """The application, and what its handlers did."""

    def __init__(
        self,
        *,
        name: str = "shop",
        needs_client: bool = False,
        revisions: Collection[str] = (MODERN,),
        declare: Callable[[Extension], None] = lambda _: None,
    ) -> None:
        self.app = App(name, version="1.0.0", experimental={"com.example/beta": {"level": 2}})
        self.extension = Extension(STOCK, settings={"units": ["piece"]}, needs_client=needs_client, revisions=revisions)
        self.reserved: list[str] = []
        self.waiting = 0
        self.cancelled = 0
        self.extension.method("stock/reserve", name="sku", scopes={"stock"})(self.reserve)
        self.extension.method("stock/count", ttl=60)(self.count)
        self.extension.method("stock/watch")(self.watch)
        self.extension.method("stock/wait", timeout=20)(self.wait)
        self.extension.method("stock/fail")(self.fail)
        self.extension.method("stock/secret", name="sku", only_for={"subject:ann"})(self.secret)
        self.changed = self.extension.notification(CHANGED, filter="stockItems")
        declare(self.extension)
        self.app.add(self.extension)
        self.app.tool()(self.look)

    async def reserve(self, sku: str, ctx: Context, count: int = 1) -> Reservation:
        """Reserve some."""
        self.reserved.append(sku)
        await ctx.tell(self.changed, sku)
        return Reservation(sku=sku, count=count, subject=ctx.principal.subject)

    async def count(self, ctx: Context) -> dict[str, Any]:
        """Count all, and show what the client declared."""
        return {"total": 7, "extensions": dict(ctx.client.extensions)}

    async def watch(self, steps: int, ctx: Context) -> None:
        """Report some steps."""
        for step in range(steps + 1):
            await ctx.progress(step, steps)

    async def wait(self) -> None:
        """Wait until nobody wants it any more."""
        self.waiting += 1
        try:
            await anyio.sleep(60)
        except BaseException:
            self.cancelled += 1
            raise

    async def fail(self, how: str) -> dict[str, Any]:
        """Fail in one of several ways."""
        if how == "authored":
            raise ProtocolError(409, "out of stock", {"left": 0})
        if how == "taken":
            return {"ttlMs": 1}
        if how == "list":
            return [how]  # type: ignore[return-value]  # the mistake
        raise RuntimeError("a secret of the database")

    async def secret(self, sku: str) -> dict[str, str]:
        """Show what only one caller may know."""
        return {"sku": sku}

    async def look(self) -> str:
        """Look around."""
        return "a lamp"


def asked(
    method: str,
    params: Mapping[str, Any] = _NOTHING,
    *,
    token: str | None = None,
    name: str | None = None,
    meta: Mapping[str, Any] = _NOTHING,
) -> dict[str, Any]:
    """The arguments of a POST that calls a method."""
    headers = {**_HEADERS, "mcp-protocol-version": MODERN, "mcp-method": method}
    headers |= {"authorization": f"Bearer {token}"} if token else {}
    headers |= {"mcp-name": name} if name is not None else {}
    return {"json": request(method, params, meta=meta), "headers": headers}
