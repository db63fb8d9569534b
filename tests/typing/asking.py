"""Questions to a client as a type checker sees them. Nothing runs here."""

from dataclasses import dataclass
from typing import Any, assert_type

from mcp_types import CreateMessageResultWithTools
from pydantic import BaseModel

from mcpfleet.app import Answers, Context, Question, Root, question


class Month(BaseModel):
    number: int


@dataclass
class Name:
    name: str


def load(account: str) -> list[int]:
    return [len(account)]


async def fetch(account: str) -> dict[str, int]:
    return {account: 1}


async def handler(ctx: Context) -> None:
    assert_type(await ctx.elicit("When?", Month, key="month"), Month)
    assert_type(await ctx.elicit("Who?", Name), Name)
    assert_type(await ctx.elicit("What?", {"type": "object"}), dict[str, Any])
    await ctx.elicit_url("Pay", "https://example.com/")
    assert_type(await ctx.sample("Hi", max_tokens=5, temperature=0.5), CreateMessageResultWithTools)
    await ctx.sample("Hi")  # type: ignore[call-arg]
    await ctx.sample("Hi", max_tokens=5, include_context="none")  # type: ignore[call-arg]
    assert_type(await ctx.roots(), list[Root])
    assert_type(
        await ctx.ask(question.form("When?", Month), question.roots(), question.form("Who?", Name)),
        tuple[Month, list[Root], Name],
    )
    assert_type(await ctx.ask(question.form("When?", Month)), tuple[Month])
    assert_type(ctx.can_ask("sampling"), bool)
    assert_type(await ctx.step("load", load, "a"), list[int])
    assert_type(await ctx.step("fetch", fetch, "a"), dict[str, int])
    await ctx.log("info", {"shelf": 1}, logger="stock")
    await ctx.log("loud", 1)  # type: ignore[arg-type]


def plain(ctx: Context) -> None:
    assert_type(ctx.sync.elicit("When?", Month), Month)
    assert_type(ctx.sync.step("load", load, "a"), list[int])
    assert_type(ctx.sync.roots(), list[Root])


assert_type(question.form("When?", Month), Question[Month])
Context(asker=Answers(month=Month(number=8)))
