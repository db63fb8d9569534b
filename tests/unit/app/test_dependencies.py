"""Dependencies: filled by annotation, opened once for a call, closed after it in reverse order, never in the schema."""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest

from mcpfleet.app import (
    App,
    Context,
    Depends,
    Handler,
    Invocation,
    Outcome,
    Principal,
    Request,
    Resource,
    Router,
    Tool,
    ToolError,
)
from mcpfleet.app.dependency import CLOSE_WITHIN

Call = Callable[..., Awaitable[Outcome]]
events: list[str] = []
"""The steps of the dependencies below, in their order."""


@pytest.fixture(autouse=True)
def nothing_yet() -> None:
    events.clear()


@dataclass
class Database:
    """Stands for a connection."""

    name: str = "real"
    thread: int = field(default_factory=threading.get_ident)


async def get_db() -> AsyncIterator[Database]:
    events.append("open db")
    try:
        yield Database()
    except BaseException as error:
        events.append(f"db heard {type(error).__name__}")
        raise
    finally:
        await anyio.lowlevel.checkpoint()
        events.append("close db")


def get_user(ctx: Context, db: Annotated[Database, Depends(get_db)]) -> Iterator[str]:
    events.append("open user")
    yield f"{ctx.principal.subject} of {db.name}"
    events.append("close user")


def get_limit(least: int = 3) -> int:
    events.append("limit")
    return least


Db = Annotated[Database, Depends(get_db)]
User = Annotated[str, Depends(get_user)]


def text_of(outcome: Outcome) -> str:
    [block] = outcome.content
    return block.text  # type: ignore[union-attr]


async def all_of_them(
    query: str, db: Db, user: User, limit: Annotated[int, Depends(get_limit)], ctx: Context
) -> list[str]:
    events.append("handler")
    return [query, db.name, user, str(limit), str(ctx.principal.subject)]


async def test_a_handler_receives_what_its_dependencies_return_and_yield(call: Call) -> None:
    outcome = await call(all_of_them, {"query": "q"}, Context(principal=Principal(subject="ann")))
    assert outcome.structured == ["q", "real", "ann of real", "3", "ann"]


async def test_a_dependency_is_opened_once_for_a_call_and_closed_in_reverse_order(call: Call) -> None:
    await call(all_of_them, {"query": "q"})
    assert events == ["open db", "open user", "limit", "handler", "close user", "close db"]


def test_a_dependency_is_no_part_of_the_schema(declare: Callable[..., Tool]) -> None:
    schema = declare(all_of_them).definition.wire["inputSchema"]
    assert list(schema["properties"]) == ["query"]
    assert schema["required"] == ["query"]


async def test_the_error_of_a_handler_is_raised_inside_of_its_dependencies(call: Call) -> None:
    async def failing(db: Db) -> str:
        raise ToolError(f"no {db.name} answer")

    outcome = await call(failing)
    assert (outcome.is_error, text_of(outcome)) == (True, "no real answer")
    assert events == ["open db", "db heard ToolError", "close db"]


async def test_a_dependency_cannot_swallow_the_error_of_a_handler(call: Call) -> None:
    async def forgiving() -> AsyncIterator[int]:
        try:
            yield 1
        except ValueError:
            events.append("forgiven")

    async def failing(one: Annotated[int, Depends(forgiving)]) -> str:
        raise ValueError(one)

    with pytest.raises(ValueError, match="1"):
        await call(failing)
    assert events == ["forgiven"]


async def test_a_dependency_may_raise_another_error_in_its_place(call: Call) -> None:
    def explaining() -> Iterator[int]:
        try:
            yield 1
        except ValueError as error:
            raise ToolError("The stock is being counted.") from error

    async def failing(one: Annotated[int, Depends(explaining)]) -> str:
        raise ValueError(one)

    outcome = await call(failing)
    assert outcome.is_error
    assert events == []


async def test_a_dependency_that_raises_a_tool_error_ends_the_call_with_it(call: Call) -> None:
    def login(db: Db) -> str:
        raise ToolError(f"Log in to the {db.name} one first.")

    async def handler(user: Annotated[str, Depends(login)]) -> str:
        events.append("handler")
        return user

    outcome = await call(handler)
    assert text_of(outcome) == "Log in to the real one first."
    assert events == ["open db", "db heard ToolError", "close db"]


async def test_a_call_that_fails_in_its_dependencies_has_not_begun(call: Call) -> None:
    def refusing() -> int:
        raise ToolError("No.")

    async def handler(one: Annotated[int, Depends(refusing)]) -> int:
        return one

    ctx = Context()
    await call(handler, ctx=ctx)
    assert not ctx.has_begun
    fine = Context()
    await call(all_of_them, {"query": "q"}, fine)
    assert fine.has_begun


async def test_plain_functions_open_and_close_in_the_handlers_own_thread(call: Call) -> None:
    """Connections of sqlite3, for example, are of one thread alone."""

    def connection() -> Iterator[Database]:
        database = Database()
        yield database
        events.append(f"same thread: {database.thread == threading.get_ident()}")

    def handler(database: Annotated[Database, Depends(connection)]) -> bool:
        return database.thread == threading.get_ident()

    assert (await call(handler)).structured is True
    assert events == ["same thread: True"]


async def test_a_plain_handler_may_depend_on_async_functions(call: Call) -> None:
    def handler(user: User) -> str:
        events.append("handler")
        return user

    assert text_of(await call(handler)) == "None of real"
    assert events == ["open db", "open user", "handler", "close user", "close db"]


async def test_a_dependency_may_hold_a_task_group(call: Call) -> None:
    async def group() -> AsyncIterator[anyio.abc.TaskGroup]:
        async with anyio.create_task_group() as tasks:
            yield tasks

    async def handler(tasks: Annotated[anyio.abc.TaskGroup, Depends(group)]) -> str:
        tasks.start_soon(anyio.sleep, 0)
        return "started"

    assert text_of(await call(handler)) == "started"


async def test_context_managers_and_classes_are_dependencies_too(call: Call) -> None:
    @asynccontextmanager
    async def managed() -> AsyncIterator[Database]:
        yield Database("managed")
        events.append("left")

    async def handler(
        one: Annotated[Database, Depends(managed)], other: Annotated[Database, Depends(Database)]
    ) -> list[str]:
        return [one.name, other.name]

    assert (await call(handler)).structured == ["managed", "real"]
    assert events == ["left"]


async def test_a_cancelled_call_closes_what_it_has_opened_and_may_await_in_that(call: Call) -> None:
    opened = anyio.Event()

    async def slow(db: Db) -> int:
        opened.set()
        await anyio.sleep_forever()
        return len(db.name)

    async def handler(one: Annotated[int, Depends(slow)]) -> int:
        return one

    async def calling() -> None:
        await call(handler)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(calling)
        await opened.wait()
        tasks.cancel_scope.cancel()
    assert events == ["open db", "db heard CancelledError", "close db"]


async def test_clean_up_that_never_ends_is_cut_off_after_its_time(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpfleet.app.dependency.CLOSE_WITHIN", 0.05)
    assert CLOSE_WITHIN == 5.0

    async def endless() -> AsyncIterator[int]:
        yield 1
        await anyio.sleep_forever()

    async def handler(one: Annotated[int, Depends(endless)]) -> int:
        return one

    with pytest.raises(RuntimeError, match=r"handler \(.*\) did not close"):
        await call(handler)


# -- kinds of handlers ------------------------------------------------------------------------------------------------


def served() -> App:
    """An App with a handler of each kind that depends on the database."""
    app = App("test", version="1")

    @app.tool()
    async def tool(db: Db) -> str:
        return db.name

    @app.prompt()
    async def prompt(topic: str, db: Db) -> str:
        return f"{topic} {db.name}"

    @app.resource("test://one")
    def one(db: Db) -> str:
        return db.name

    @app.resource("test://items/{item}")
    async def item(item: int, db: Db) -> str:
        return f"{item} {db.name}"

    @app.resources()
    async def listed(db: Db) -> list[Resource]:
        return [Resource(uri=f"test://{db.name}", name=db.name)]

    @app.completion(prompt, "topic")
    async def topics(typed: str, db: Db) -> list[str]:
        return [typed + db.name]

    return app


@dataclass(frozen=True)
class Completing:
    argument: str = "topic"
    value: str = "a "
    context: dict[str, str] = field(default_factory=dict)


REQUESTS = {
    ("tool", "tool"): Request(),
    ("prompt", "prompt"): Request({"topic": "x"}),
    ("resource", "test://one"): Request(uri="test://one"),
    ("template", "test://items/{item}"): Request(uri="test://items/1"),
    ("lister", "listed"): Request(),
}


async def answers(app: App) -> list[str]:
    handlers: dict[tuple[str, str], Handler] = {
        (each.definition.kind, each.definition.name): each for each in app.handlers
    }
    found = [await handlers[kind].answer(request, Context()) for kind, request in REQUESTS.items()]
    found.append(await app.prompts["prompt"].answer(Request(completing=Completing()), Context()))
    return [str(each.fields()) for each in found]


async def test_every_kind_of_handler_takes_dependencies() -> None:
    assert all("real" in answer for answer in await answers(served()))
    assert events == ["open db", "close db"] * 6


async def test_interceptors_run_around_dependencies() -> None:
    app = served()

    @app.interceptor
    async def around(invocation: Invocation, call_next: Any) -> Any:
        events.append("before")
        result = await call_next(invocation)
        events.append("after")
        return result

    await app.tools["tool"].answer(Request(), Context(), interceptors=app.interceptors)
    assert events == ["before", "open db", "close db", "after"]


# -- other functions in a test ----------------------------------------------------------------------------------------


async def test_a_test_lets_another_function_stand_for_a_dependency() -> None:
    app = served()
    with app.override(get_db, lambda: Database("fake")):
        assert all("fake" in answer for answer in await answers(app))
    assert all("real" in answer for answer in await answers(app))


async def test_what_stands_for_a_dependency_may_depend_on_it() -> None:
    def wrapped(db: Db) -> Database:
        return Database(f"wrapped-{db.name}")

    app = served()
    with app.override(get_db, wrapped):
        assert all("wrapped-real" in answer for answer in await answers(app))


async def test_an_including_app_overrides_for_its_routers() -> None:
    router, app = Router(), App("test", version="1")

    @router.tool()
    async def tool(db: Db) -> str:
        return db.name

    app.include(router, prefix="r.")
    with app.override(get_db, lambda: Database("fake")):
        outcome = await app.tools["r.tool"].call({}, Context(), threads=anyio.CapacityLimiter(1))
    assert text_of(outcome) == "fake"


def test_an_override_of_a_function_that_nothing_depends_on_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"no handler of this App depends on .*get_limit"):
        served().override(get_limit, lambda: 1)
