"""Declarations as a type checker sees them. Nothing runs here: mypy checks it."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, assert_type

from mcpfleet.app import (
    App,
    CallNext,
    Completion,
    Context,
    Depends,
    Handler,
    Icon,
    Invocation,
    Lifespan,
    Outcome,
    Page,
    PromptMessage,
    Resource,
    Tool,
    ToolAnnotations,
    content,
    load,
    message,
)

app = App("library", version="1.0.0", title="Library", instructions="Search first.")

app.title = "A library"


@app.tool()
async def search(query: str, limit: int = 10) -> list[str]:
    return [query] * limit


@app.tool(
    "library.cover",
    title="Cover",
    description="The cover of a book.",
    annotations=ToolAnnotations(read_only_hint=True),
    icons=[Icon(src="https://example.com/cover.png")],
    meta={"com.example/shelf": 3},
    timeout=5,
    on_disconnect="continue",
    asks={"elicitation.form"},
    scopes=["covers:read"],
    structured=False,
)
def cover(book: int, ctx: Context) -> Outcome:
    return Outcome([content.image(b"", "image/png")], structured={"book": book})


@app.tool(input_schema={"type": "object"}, output_schema={"type": "object"})
def anything(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


async def use() -> None:
    """A decorated function keeps its own type: an application's code and tests call it as before."""
    assert_type(await search("emma", limit=1), list[str])
    assert_type(cover(1, Context()), Outcome)
    assert_type(anything({}), dict[str, Any])
    await search(5)  # type: ignore[arg-type]
    await search("emma", page=1)  # type: ignore[call-arg]


# The checker refuses a declaration that cannot be right, before it runs.
app.tool(search)  # type: ignore[arg-type]
app.tool(on_disconnect="stop")  # type: ignore[arg-type]
app.tool(timeout="5")  # type: ignore[arg-type]
app.tool(colour="red")  # type: ignore[call-arg]
App()  # type: ignore[call-arg]
app.tools["search"] = app.tools["library.cover"]  # type: ignore[index]

assert_type(load("examples/library.py"), App)
assert_type(app.tools["search"], Tool)


# Other kinds keep their functions' types too.
@app.resource("library://books/{book}", mime_type="text/plain", ttl=5, only_for=["tenant:acme"])
async def opening(book: int) -> str | None:
    return str(book)


@app.prompt(title="Review", may_ask={"sampling"})
def review(title: str, words: int = 100) -> list[PromptMessage]:
    return [message.user(title), message.assistant(content.text(str(words)))]


@app.completion(review, "title")
async def titles(typed: str, settled: dict[str, str]) -> Completion:
    return Completion(values=[typed, *settled])


@app.resources()
async def shelf(cursor: str | None = None) -> Page:
    return Page([Resource(uri="library://books/1", name="emma")], cursor)


@app.interceptor
async def around(invocation: Invocation, call_next: CallNext) -> Any:
    assert_type(invocation.ctx, Context)
    return await call_next(invocation)


app.tool(idempotency_key=False)  # type: ignore[arg-type]


@app.tool(idempotency_key=True, task="optional", sanitize=lambda result, ctx: result)
async def again() -> int:
    return 1


@app.tool(rate=(10, 60), per_caller=True, sanitize=lambda result, ctx: result)
async def limited() -> int:
    return 1


async def use_others() -> None:
    assert_type(await opening(1), str | None)
    assert_type(review("Emma"), list[PromptMessage])
    assert_type(await titles("E", {}), Completion)
    assert_type(await limited(), int)


class Pool:
    async def close(self) -> None: ...


def get_pool(ctx: Context) -> Pool:
    raise NotImplementedError


@app.lifespan
async def opened(given: App) -> AsyncIterator[Pool]:
    yield Pool()


@app.tool()
async def injected(pool: Lifespan[Pool], other: Annotated[Pool, Depends(get_pool)]) -> int:
    assert_type(pool, Pool)
    assert_type(other, Pool)
    return 1


async def use_injected() -> None:
    assert_type(await injected(Pool(), Pool()), int)
    with app.override(get_pool, Pool):
        async with app.entered() as lifespan:
            Context(lifespan=lifespan)


app.tool(descripton="x")  # type: ignore[call-arg]
App("test", lifespn=opened)  # type: ignore[call-arg]
app.resource(opening)  # type: ignore[arg-type]
app.prompt(ttl=5)  # type: ignore[call-arg]
app.resource("library://books", timeout="5")  # type: ignore[arg-type]
app.interceptor(lambda invocation: None)  # type: ignore[type-var]
assert_type(app.handlers[0], Handler)
