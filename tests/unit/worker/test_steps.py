"""Steps of a handler that asks: done once over all its rounds, and remembered with the call."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from mcp_types import CallToolResult
from pydantic import BaseModel

from mcpfleet.app import Context
from mcpfleet.worker.replay import MOST_REMEMBERED
from tests.unit.worker.bench import app_of, bench, text_of
from tests.unit.worker.test_asking import ASKS, FORMS, Name, filled, through_rounds


class Row(BaseModel):
    name: str


@pytest.mark.rule("M53")
async def test_a_step_is_done_once_over_all_rounds() -> None:
    done: list[Any] = []

    def load(account: str) -> list[Row]:
        done.append(account)
        return [Row(name=account)]

    async def count(amount: int):  # type: ignore[no-untyped-def]
        done.append(amount)
        return (amount,)

    async def report(ctx: Context) -> str:
        rows = await ctx.step("load", load, "a")
        others = await ctx.step("load", load, "b")
        first = await ctx.step("count", count, 1)
        second = await ctx.step("count", count, 1)
        name = await ctx.elicit("Who?", Name, key="name")
        return f"{rows[0].name}{others[0].name} {first} {second} {name.name}"

    async with bench(app_of(report, asks=ASKS)) as runs:
        result = await through_rounds(runs, "report", [{"name": filled(name="Ann")}])
    assert text_of(result) == "ab [1] [1] Ann"
    assert done == ["a", "b", 1, 1]


@pytest.mark.rule("M53")
async def test_a_step_that_fails_is_not_remembered() -> None:
    async def fail() -> None:
        raise ValueError("no")

    async def report(ctx: Context) -> str:
        try:
            await ctx.step("fail", fail)
        except ValueError:
            await ctx.elicit("Go on?", Name, key="name")
        return "done"

    async with bench(app_of(report, asks=ASKS)) as runs:
        assert (await runs.asks("report", capabilities=FORMS))["memory"]["steps"] == {}


@pytest.mark.rule("M53")
async def test_more_than_a_call_can_remember_is_an_error_that_says_what_to_do() -> None:
    async def report(ctx: Context) -> None:
        await ctx.step("load", lambda: "x" * MOST_REMEMBERED)

    async with bench(app_of(report, asks=ASKS)) as runs:
        assert (await runs.call("report", capabilities=FORMS))["isError"] is True
        assert "task" in str(runs.log.entries[-1]["exc_info"])


@pytest.mark.rule("M53")
async def test_a_result_that_no_later_run_could_have_is_an_error() -> None:
    async def report(ctx: Context) -> None:
        await ctx.step("load", object)

    async with bench(app_of(report, asks=ASKS)) as runs:
        assert (await runs.call("report", capabilities=FORMS))["isError"] is True
        assert "'load'" in str(runs.log.entries[-1]["exc_info"])


@pytest.mark.rule("K29")
async def test_a_steps_failed_result_is_no_success_in_a_later_run() -> None:
    """A declared result stays itself in each run; an undeclared one would become data, so the call fails."""

    def declared() -> CallToolResult:
        return CallToolResult(content=[], is_error=True)

    def silent():  # type: ignore[no-untyped-def]
        return declared()

    async def report(ctx: Context) -> CallToolResult:
        found = await ctx.step("look", declared)
        await ctx.elicit("Go on?", Name, key="name")
        return found

    async def guess(ctx: Context) -> Any:
        return await ctx.step("look", silent)

    async with bench(app_of(report, guess, asks=ASKS)) as runs:
        told = await through_rounds(runs, "report", [{"name": filled(name="Ann")}])
        assert (told["isError"], told["content"]) == (True, [])
        assert (await runs.call("guess", capabilities=FORMS))["isError"] is True
        assert "return annotation" in str(runs.log.entries[-1]["exc_info"])


async def test_a_handler_that_asks_nothing_may_have_steps_too() -> None:
    async def report(ctx: Context) -> str:
        return await ctx.step("load", lambda: "loaded")

    async with bench(app_of(report)) as runs:
        assert text_of(await runs.call("report")) == "loaded"


async def test_steps_of_plain_handlers_need_no_thread_that_these_hold() -> None:
    """All threads of the worker wait for a step each: were these to wait for a free one, none would come free."""
    together = threading.Barrier(2)

    def effect(number: int) -> int:
        return 2 * number

    def work(number: int, ctx: Context) -> int:
        together.wait(5)
        return ctx.sync.step("effect", effect, number)

    async with bench(app_of(work), threads=2) as runs:
        calls = [runs.start("work", {"number": number}) for number in (1, 2)]
        ends = [await runs.end(call) for call in calls]
    assert [json.loads(end.body)["structuredContent"] for end in ends] == [2, 4]
