"""The bounds of lifespans: each has its time to be entered, and to be left."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

from mcpfleet.app.lifespan import ENTER_WITHIN, LEAVE_WITHIN, LifespanFailed, LifespanFunction, Lifespans, Scope

pytestmark = pytest.mark.rule("X68")
events: list[str] = []


async def slow_to_enter() -> AsyncIterator[None]:
    await anyio.sleep_forever()
    yield


async def slow_to_leave() -> AsyncIterator[None]:
    yield
    await anyio.sleep_forever()


async def holds_tasks() -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep_forever)
        yield
        events.append("left")
        tasks.cancel_scope.cancel()


async def ends_early() -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.cancel_scope.cancel()
        yield


def lifespans(*functions: Callable[..., Any], within: float = 0.1) -> Lifespans:
    declared = [(Scope(), LifespanFunction(function)) for function in functions]
    return Lifespans(declared, None, enter_within=within, leave_within=within)


async def run(lifespans: Lifespans) -> list[LifespanFailed]:
    told: list[LifespanFailed] = []
    async with anyio.create_task_group() as tasks:
        await tasks.start(lifespans.run, told.append)
        lifespans.leave()
    return told


@pytest.mark.rule("X68")
def test_the_bounds_are_30_and_10_seconds() -> None:
    assert (ENTER_WITHIN, LEAVE_WITHIN) == (30.0, 10.0)


@pytest.mark.rule("X68")
async def test_a_lifespan_that_is_not_entered_in_time_has_failed() -> None:
    failing = lifespans(holds_tasks, slow_to_enter)
    assert await run(failing) == []
    assert "slow_to_enter (" in str(failing.failure)
    assert "was not entered within 0.1 s" in str(failing.failure)


@pytest.mark.rule("X68")
async def test_a_lifespan_that_is_not_left_in_time_has_failed() -> None:
    [failure] = await run(lifespans(slow_to_leave))
    assert "was not left within 0.1 s" in str(failure)


@pytest.mark.rule("X68")
async def test_a_lifespan_may_hold_task_groups_beyond_the_time_to_enter_it() -> None:
    events.clear()
    held = lifespans(holds_tasks, holds_tasks)
    async with anyio.create_task_group() as tasks:
        await tasks.start(held.run)
        await anyio.sleep(0.2)
        held.leave()
    assert held.failure is None
    assert events == ["left", "left"]


@pytest.mark.rule("X68")
async def test_a_lifespan_that_ends_by_itself_has_failed() -> None:
    told: list[LifespanFailed] = []
    await lifespans(ends_early).run(told.append)
    assert "ends_early" in str(told[0])
    assert "ended while the worker serves" in str(told[0])


@pytest.mark.rule("X68")
async def test_a_lifespan_that_is_given_up_while_it_is_entered_has_not_failed() -> None:
    given_up = lifespans(slow_to_enter, within=30)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(given_up.run)
        await anyio.sleep(0.01)
        given_up.give_up()
    assert given_up.failure is None
