"""An application whose tasks' results are cleared for each who reads them, and which notes who that was."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

import anyio
from mcp_types import TextContent

from mcpfleet.app import App, Context, Outcome, ToolError


@dataclass(frozen=True)
class Account:
    """What the tasks give: not every reader may see its balance."""

    owner: str
    opened: dt.date
    balance: int | None = None


@dataclass
class Office:
    """The application, and what its sanitizers saw."""

    seen: list[tuple[object, tuple[str, ...]]] = field(default_factory=list)
    """What each was given, and the reader's scopes."""
    broken: bool = False
    release: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.app = App("office", version="1")
        self.declare(self.app)

    def declare(self, app: App, description: str = "Looks accounts up.") -> None:
        """Declare the tools, in one version or another."""

        @app.tool(task="required", sanitize=self.clear, description=description)
        async def accounts(large: int = 0) -> list[Account]:
            return [Account("ann" + "x" * large, dt.date(2026, 1, 2), 100)]

        @app.tool(task="optional", sanitize=self.clear)
        async def later(ctx: Context) -> list[Account]:
            if ctx.can_defer:
                await ctx.defer()
            await self.release.wait()
            return [Account("ann", dt.date(2026, 1, 2), 100)]

        @app.tool(task="required", sanitize=self.note)
        async def letter(kind: str) -> Outcome | str | None:
            match kind:
                case "hangs":
                    return "hangs"
                case "text":
                    return "dear\x1b reader"
                case "nothing":
                    return None
                case "fails":
                    raise ToolError("no paper")
            return Outcome([TextContent(text="see")], structured={"pages": 2}, meta={"x": 1})

    def clear(self, found: list[Account], ctx: Context) -> list[Account]:
        """Show balances to those alone who may see them."""
        self.seen.append((found, ctx.principal.scopes))
        if self.broken:
            raise RuntimeError("the sanitizer is broken")
        if "balances" in ctx.principal.scopes:
            return found
        return [Account(each.owner, each.opened) for each in found]

    async def note(self, value: object, ctx: Context) -> object:
        """Let everything through, and note it."""
        self.seen.append((value, ctx.principal.scopes))
        if value == "hangs":
            await anyio.sleep_forever()
        return value
