"""Mistakes in dependencies and lifespans: each is told at the declaration, or before a worker serves."""

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import pytest

from mcpfleet.app import App, DeclarationError, Depends, Lifespan


def get_limit(least: int = 3) -> int:
    return least


async def get_db() -> AsyncIterator[int]:
    yield 1


async def counted(state: Lifespan[dict[str, int]]) -> int:
    return len(state)


def needs_an_argument(query: str) -> str:
    return query


def chicken(egg: Annotated[int, Depends(lambda: 1)]) -> int:
    return egg


def egg(of: Annotated[int, Depends(chicken)]) -> int:
    return of


chicken.__annotations__["egg"] = Annotated[int, Depends(egg)]


async def circle(it: Annotated[int, Depends(egg)]) -> None: ...


async def unfilled(it: Annotated[str, Depends(needs_an_argument)]) -> None: ...


async def builtin(it: Annotated[int, Depends(min)]) -> None: ...


async def twice(it: Annotated[int, Depends(get_limit), Depends(get_db)]) -> None: ...


async def below(it: Annotated[int, Depends(get_limit)] | None) -> None: ...


async def by_default(it: int = Depends(get_limit)) -> None: ...  # type: ignore[assignment]


MISTAKES = [
    (circle, r"circle: .*egg \(.*\) needs .*chicken \(.*\) needs .*egg"),
    (unfilled, r"needs_an_argument \(.*test_dependency_mistakes.py:\d+\) takes 'query', which nothing fills"),
    (builtin, "its signature cannot be read"),
    (twice, "depends on two things"),
    (below, "write it outermost"),
    (by_default, "not a default"),
]


@pytest.mark.parametrize(("handler", "why"), MISTAKES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_mistake_names_the_function_and_the_parameter(handler: Callable[..., Any], why: str) -> None:
    with pytest.raises(DeclarationError, match=why) as caught:
        App("test", version="1").tool()(handler)
    assert f"{handler.__name__} (" in str(caught.value)
    assert "parameter 'it'" in str(caught.value)


def test_a_lifespan_that_nothing_declares_is_an_error_before_a_worker_starts() -> None:
    app = App("test", version="1")
    app.tool()(counted)
    with pytest.raises(DeclarationError, match=r"counted \(.*no lifespan"):
        app.lifespans()
