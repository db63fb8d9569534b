"""Handlers with dependencies in a worker: their time, their cancels, their threads, and their questions."""

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

import anyio
import pytest

from mcpfleet.app import Context, Depends
from mcpfleet.contracts.call import FAILED
from tests.kit.waiting import until
from tests.unit.worker.bench import app_of, bench, text_of

FORM = {"type": "object", "properties": {"city": {"type": "string"}}}
events: list[str] = []


@pytest.fixture(autouse=True)
def nothing_yet() -> None:
    events.clear()


async def slow() -> AsyncIterator[int]:
    events.append("opening")
    try:
        await anyio.sleep_forever()
        yield 1
    finally:
        events.append("cancelled")


async def waits(one: Annotated[int, Depends(slow)]) -> int:
    events.append("handler")
    return one


async def test_opening_a_dependency_counts_as_a_part_of_the_calls_time() -> None:
    async with bench(app_of(waits, timeout=0.1)) as runs:
        result = await runs.call("waits")
    assert text_of(result) == "The tool did not finish within 0.1 s."
    assert events == ["opening", "cancelled"]


async def test_a_cancel_reaches_a_call_whose_dependency_is_being_opened() -> None:
    async with bench(app_of(waits)) as runs:
        held = runs.start("waits")
        await until(lambda: events)
        runs.runner.obey(held.key)
        await runs.end(held)
    assert events == ["opening", "cancelled"]


async def test_a_failing_dependency_is_logged_as_the_handlers_failure() -> None:
    def broken() -> int:
        raise ConnectionRefusedError("no database")

    async def handler(one: Annotated[int, Depends(broken)]) -> int:
        return one

    async with bench(app_of(handler)) as runs:
        end = await runs.end(runs.start("handler"))
        [line] = [line for line in runs.log.entries if line["log_level"] == "error"]
    assert end.header == FAILED
    assert isinstance(line["exc_info"], ConnectionRefusedError)


async def test_a_question_closes_what_its_run_has_opened() -> None:
    def opened() -> Iterator[str]:
        events.append(f"open in {threading.current_thread().name == 'MainThread'}")
        try:
            yield "x"
        finally:
            events.append("closed")

    def asks(ctx: Context, one: Annotated[str, Depends(opened)]) -> str:
        return one + str(ctx.sync.elicit("Where?", FORM, key="where")["city"])

    async with bench(app_of(asks)) as runs:
        asked = await runs.asks("asks", capabilities={"elicitation": {}})
        assert events == ["open in False", "closed"]
        answers = {"where": {"action": "accept", "content": {"city": "Oslo"}}}
        result = await runs.call("asks", capabilities={"elicitation": {}}, answers=answers, memory=asked["memory"])
    assert text_of(result) == "xOslo"
    assert events == ["open in False", "closed"] * 2


@pytest.mark.rule("D16")
async def test_a_question_of_a_dependency_is_seen_too() -> None:
    async def agreed(ctx: Context) -> str:
        return str((await ctx.elicit("Where?", FORM, key="where"))["city"])

    async def asks(city: Annotated[str, Depends(agreed)]) -> str:
        return city

    app = app_of(asks)
    assert app.tools["asks"].definition.asks == ("elicitation.form",)
    async with bench(app) as runs:
        assert list((await runs.asks("asks", capabilities={"elicitation": {}}))["inputRequests"]) == ["where"]


async def test_plain_handlers_with_dependencies_share_the_bound_of_threads() -> None:
    """Opening never takes a second thread of the bound while the handler waits for one."""

    def opened() -> Iterator[int]:
        yield 1

    async def also() -> int:
        return 2

    def handler(one: Annotated[int, Depends(opened)], two: Annotated[int, Depends(also)]) -> int:
        return one + two

    async with bench(app_of(handler), threads=1) as runs:
        held = [runs.start("handler") for _ in range(10)]
        for each in held:
            await runs.end(each)
