"""Values of lifespans: handlers take them by annotation, and a test gives them without a fleet."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated

import anyio
import pytest

from mcpfleet.app import App, Context, Depends, Lifespan, Outcome, Router

Call = Callable[..., Awaitable[Outcome]]


def get_limit(least: int = 3) -> int:
    return least


def text_of(outcome: Outcome) -> str:
    [block] = outcome.content
    return block.text  # type: ignore[union-attr]


async def counted(state: Lifespan[dict[str, int]], step: Annotated[int, Depends(get_limit)]) -> int:
    state["calls"] = state.get("calls", 0) + step
    return state["calls"]


async def test_a_test_gives_the_value_of_the_lifespan(call: Call) -> None:
    state = {"calls": 1}
    assert (await call(counted, ctx=Context(lifespan=state))).structured == 4
    assert state == {"calls": 4}


async def test_without_a_lifespan_the_error_says_how_a_test_gives_one(call: Call) -> None:
    with pytest.raises(RuntimeError, match=r"counted \(.*Context\(lifespan=…\)"):
        await call(counted)


async def test_a_router_has_its_own_lifespan_and_else_that_of_its_app() -> None:
    own, bare = Router(), Router()
    app = App("test", version="1")

    @app.lifespan
    async def of_app() -> AsyncIterator[str]:
        yield "app"

    @own.lifespan
    @asynccontextmanager
    async def of_router(given: App) -> AsyncIterator[str]:
        yield f"router of {given.name}"

    async def tell(value: Lifespan[str]) -> str:
        return value

    for place, prefix in ((own, "own."), (bare, "bare."), (app, "")):
        place.tool()(tell)
        if place is not app:
            app.include(place, prefix=prefix)
    async with app.entered() as lifespan:
        ctx = Context(lifespan=lifespan)
        told = [await app.tools[name].call({}, ctx, threads=anyio.CapacityLimiter(1)) for name in sorted(app.tools)]
    assert [text_of(each) for each in told] == ["app", "router of test", "app"]
