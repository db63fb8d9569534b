"""Applications of the tests of tasks, and what their handlers note of their runs."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
from pydantic import BaseModel

from mcpfleet.app import App, Context, ProtocolError, ToolError, TryAgain, question


class Month(BaseModel):
    number: int


class Agreed(BaseModel):
    yes: bool


@dataclass
class Works:
    """An application with tasks."""

    runs: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    release: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.app = App("works", version="1")
        self._declare_ends(self.app)
        self._declare_lives(self.app)
        self._declare_questions(self.app)
        self._declare_keys(self.app)

    def _declare_ends(self, app: App) -> None:
        @app.tool(task="required", retention=60.0)
        async def double(number: int) -> int:
            self.runs.append("double")
            return 2 * number

        @app.tool(task="required")
        async def fails() -> None:
            raise ToolError("no paper")

        @app.tool(task="required")
        async def breaks() -> None:
            raise ProtocolError(-31001, "out of order", {"since": "noon"})

        @app.tool(task="required")
        async def lies() -> int:
            return "no number"  # type: ignore[return-value]  # that is what it is for

        @app.tool(task="required")
        async def flaky(times: int) -> str:
            self.runs.append("flaky")
            if self.runs.count("flaky") < times:
                raise TryAgain("not yet")
            return f"after {self.runs.count('flaky')}"

        @app.tool(task="required")
        async def hold(ctx: Context) -> str:
            self.runs.append("hold")
            await ctx.progress(1, total=3, message="holding")
            try:
                await self.release.wait()
            except BaseException:
                self.cancelled.append("hold")
                raise
            return "released"

    def _declare_lives(self, app: App) -> None:
        @app.tool(task="required", retention=0.2)
        async def brief() -> str:
            return "gone soon"

        @app.tool(task="required")
        async def silent(seconds: float) -> str:
            self.runs.append("silent")
            await anyio.sleep(seconds)
            return "at last"

    def _declare_questions(self, app: App) -> None:
        @app.tool(task="required", asks={"elicitation.form"})
        async def report(account: str, ctx: Context) -> str:
            self.runs.append("report")
            rows = await ctx.step("load", self.load, account)
            month = await ctx.elicit("Which month?", Month, key="month")
            more = await ctx.step("load", self.load, f"{account}-{month.number}")
            return f"{rows} {more}"

        @app.tool(task="required", asks={"elicitation.form"})
        async def both(ctx: Context) -> str:
            month, agreed = await ctx.ask(
                question.form("Which month?", Month, key="month"), question.form("Sure?", Agreed, key="sure")
            )
            return f"{month.number} {agreed.yes}"

        @app.tool(task="optional", asks={"elicitation.form"})
        async def later(ctx: Context) -> str:
            self.runs.append("later")
            month = await ctx.elicit("Which month?", Month, key="month")
            rows = await ctx.step("load", self.load, "x")
            if not ctx.can_defer:
                return f"inline {month.number}"
            await ctx.defer()
            agreed = await ctx.elicit("Sure?", Agreed, key="sure")
            return f"{month.number} {rows} {agreed.yes}"

        @app.tool(task="optional")
        async def must(ctx: Context) -> str:
            await ctx.defer()
            return "deferred"

    def _declare_keys(self, app: App) -> None:
        @app.tool(idempotency_key="request", timeout=60.0)
        async def pay(amount: int, request: str, ctx: Context) -> str:
            self.runs.append("pay")
            if amount == 13:
                raise ProtocolError(-31002, "unlucky")
            if amount > 100:
                await self.release.wait()
            return f"paid {amount} ({self.runs.count('pay')})"

        @app.tool(task="required", idempotency_key="request")
        async def order(item: str, request: str) -> str:
            self.runs.append("order")
            return item

        @app.tool(task="optional", idempotency_key="request")
        async def book(item: str, request: str, ctx: Context) -> str:
            self.runs.append("book")
            await ctx.defer()
            return item

    async def load(self, what: str) -> str:
        """A step that counts."""
        from mcpfleet.app.function import running_step  # a step has no Context of its own

        self.steps.append(what)
        self.keys.append(running_step.get())
        return f"rows of {what}"
