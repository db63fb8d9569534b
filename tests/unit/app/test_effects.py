"""The lint for effects before a question: it names those that happen again, and is quiet about the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest

from mcpfleet.app import App, Context, Depends, Lifespan
from mcpfleet.app.effects import effects_before_questions

FORM = {"type": "object", "properties": {"city": {"type": "string"}}}
ORDERS: dict[str, str] = {}
SEEN: set[str] = set()


class Shop:
    """Stands for a database, a client or a session: only names count."""

    async def insert(self, *what: object) -> None: ...
    async def get_price(self, *what: object) -> None: ...
    async def execute(self, *what: object) -> None: ...
    def commit(self) -> None: ...
    def reserve(self) -> None: ...


def a_shop() -> Shop:
    return Shop()


shop = Shop()


def set_aside(item: int) -> int:
    return item


async def awaited(ctx: Context) -> None:
    await shop.insert(1)  # effect
    await ctx.elicit("Where?", FORM)


async def read_only(ctx: Context) -> None:
    await shop.get_price(1)
    await anyio.lowlevel.checkpoint()
    await ctx.progress(1)
    await ctx.elicit("Where?", FORM)
    await shop.insert(1)


async def in_a_step(ctx: Context) -> None:
    await ctx.step("set aside", set_aside, 1)
    await ctx.step("insert", shop.insert, 1)
    await ctx.elicit("Where?", FORM)


async def sql(ctx: Context) -> None:
    await shop.execute("SELECT 1")
    await shop.execute("INSERT INTO orders VALUES (1)")  # effect
    await ctx.sample("Hi", max_tokens=1)


async def between_two(ctx: Context) -> None:
    await ctx.elicit("Where?", FORM)
    await shop.insert(1)  # effect
    await ctx.elicit("When?", FORM)


async def in_a_loop(ctx: Context) -> None:
    for _ in range(2):
        await ctx.elicit("Where?", FORM)
        await shop.insert(1)  # effect


async def left_before(item: int, ctx: Context) -> None:
    if item == 1:
        await shop.insert(1)
        return
    await ctx.elicit("Where?", FORM)


async def in_one_branch(item: int, ctx: Context) -> None:
    if item == 1:
        await shop.insert(1)  # effect
    else:
        await shop.get_price(1)
    await ctx.elicit("Where?", FORM)


async def a_dependency(db: Annotated[Shop, Depends(a_shop)], state: Lifespan[Shop], ctx: Context) -> None:
    await db.get_price()
    db.reserve()  # effect
    state.commit()  # effect
    await ctx.elicit("Where?", FORM)


async def module_state(item: str, ctx: Context) -> None:
    own = set[str]()
    own.add(item)
    SEEN.add(item)  # effect
    ORDERS[item] = item  # effect
    await ctx.elicit("Where?", FORM)


def plain(ctx: Context) -> None:
    with Path("x").open() as file:
        file.read()
    with Path("x").open("w") as file:  # effect
        pass
    ctx.sync.elicit("Where?", FORM)


async def nested(ctx: Context) -> None:
    async def where() -> None:
        await ctx.elicit("Where?", FORM)

    await shop.insert(1)  # effect
    await where()


async def asks_nothing(ctx: Context) -> None:
    await shop.insert(1)
    await ctx.progress(1)


HANDLERS: list[Callable[..., Any]] = [
    awaited, read_only, in_a_step, sql, between_two, in_a_loop, left_before, in_one_branch, a_dependency, module_state,
    plain, nested, asks_nothing,
]  # fmt: skip


@pytest.mark.rule("M53")
@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.__name__)
def test_effects_that_a_question_may_repeat_are_named_with_their_lines(handler: Callable[..., Any]) -> None:
    """The lines of this file that say `# effect` are the expected ones."""
    lines = Path(__file__).read_text().splitlines()
    first = handler.__code__.co_firstlineno
    after = (number for number in range(first + 1, len(lines) + 1) if lines[number - 1][:1] not in (" ", ")", ""))
    expected = [number for number in range(first, next(after)) if lines[number - 1].endswith("# effect")]
    found = effects_before_questions(handler)
    assert [each.line for each in found] == expected
    assert {each.file for each in found} <= {__file__}


def test_a_declaration_is_read_as_its_function_is_and_the_text_is_the_call() -> None:
    app = App("test", version="1")
    app.tool()(awaited)
    [found] = effects_before_questions(app.tools["awaited"])
    assert found.text == "shop.insert(1)"
    assert str(found) == f"{__file__}:{found.line}: shop.insert(1)"


def test_a_function_without_source_is_passed_over() -> None:
    made: dict[str, Any] = {"Context": Context, "shop": shop, "FORM": FORM}
    exec("async def unseen(ctx: Context):\n    await shop.insert(1)\n    await ctx.elicit('Where?', FORM)", made)
    assert effects_before_questions(made["unseen"]) == []
