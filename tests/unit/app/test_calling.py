"""A call of a tool: async or in a thread, and how each kind of failure leaves it."""

import contextlib
import contextvars
import functools
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from mcpfleet.app import (
    App,
    Context,
    InvalidArguments,
    Outcome,
    OutputError,
    Progress,
    ProgressError,
    ProtocolError,
    TextContent,
    Tool,
    ToolError,
)

Declare = Callable[..., Tool]
Call = Callable[..., Awaitable[Outcome]]

trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace")


async def test_an_async_handler_runs_on_the_event_loops_thread(call: Call) -> None:
    async def handler() -> int:
        return threading.get_ident()

    assert (await call(handler)).structured == threading.get_ident()


async def test_a_plain_handler_runs_in_a_thread_with_the_context_variables(call: Call) -> None:
    def handler() -> list[Any]:
        return [threading.get_ident(), trace.get()]

    trace.set("of the call")
    outcome = await call(handler)
    assert outcome.structured[0] != threading.get_ident()
    assert outcome.structured[1] == "of the call"


async def test_plain_handlers_share_the_threads_that_they_are_given(declare: Declare) -> None:
    running, most = 0, 0
    lock = threading.Lock()
    both = threading.Event()

    def handler() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 2:
                both.set()
        both.wait(5)
        with lock:
            running -= 1

    tool, threads = declare(handler), anyio.CapacityLimiter(2)
    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(functools.partial(tool.call, {}, Context(), threads=threads))
    assert most == 2


async def test_a_plain_handler_keeps_its_thread_when_the_call_is_cancelled(declare: Declare) -> None:
    """P8: the slot is charged until the function has really returned."""
    started, go_on, returned = threading.Event(), threading.Event(), threading.Event()

    def handler() -> None:
        started.set()
        go_on.wait(5)
        returned.set()

    tool, threads = declare(handler), anyio.CapacityLimiter(1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(functools.partial(tool.call, {}, Context(), threads=threads))
        await anyio.to_thread.run_sync(started.wait)
        tasks.cancel_scope.cancel()
        go_on.set()
    assert returned.is_set()


async def test_a_cancelled_async_handler_stops_at_its_next_await(declare: Declare) -> None:
    started = anyio.Event()

    async def handler() -> None:
        started.set()
        await anyio.sleep_forever()

    tool = declare(handler)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(functools.partial(tool.call, {}, Context(), threads=anyio.CapacityLimiter(1)))
            await started.wait()
            tasks.cancel_scope.cancel()


class Object:
    """Handlers that are not plain functions."""

    async def method(self, book: int) -> int:
        return book

    async def __call__(self, book: int) -> int:
        return book


async def partly(shelf: str, book: int) -> str:
    return f"{shelf}{book}"


@pytest.mark.parametrize(
    ("handler", "options"),
    [
        pytest.param(Object().method, {}, id="bound method"),
        pytest.param(Object(), {"name": "object"}, id="object with an async __call__"),
    ],
)
async def test_any_callable_can_be_a_handler(call: Call, handler: Any, options: dict[str, Any]) -> None:
    assert (await call(handler, {"book": 7}, **options)).structured == 7


def logged(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate as many decorators do: with a plain function, whatever is inside."""

    @functools.wraps(handler)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return handler(*args, **kwargs)

    return wrapper


async def test_a_plain_decorator_around_an_async_handler_is_fine(call: Call) -> None:
    assert (await call(logged(Object().method), {"book": 7})).structured == 7


async def test_a_partial_offers_what_is_left_to_fill(call: Call) -> None:
    outcome = await call(functools.partial(partly, "A"), {"book": 7})
    assert list(outcome.content) == [TextContent(text="A7")]


async def test_the_context_reaches_the_parameter_of_that_type(call: Call) -> None:
    async def handler(first: int, call_of_mine: Context, last: int) -> bool:
        return call_of_mine is ctx

    ctx = Context()
    assert (await call(handler, {"first": 1, "last": 2}, ctx)).structured is True


async def test_the_name_of_the_context_is_no_argument(call: Call) -> None:
    async def handler(ctx: Context) -> None: ...

    with pytest.raises(InvalidArguments):
        await call(handler, {"ctx": {}})


async def test_a_tool_error_is_a_result_that_the_model_reads(call: Call) -> None:
    async def handler() -> int:
        raise ToolError("There is no such book; search first.")

    outcome = await call(handler)
    assert outcome.fields() == {
        "content": [{"type": "text", "text": "There is no such book; search first."}],
        "isError": True,
    }


async def test_a_tool_error_from_a_thread_is_the_same(call: Call) -> None:
    def handler() -> int:
        raise ToolError("No.")

    assert (await call(handler)).is_error


async def in_a_task_group(*errors: Exception) -> None:
    """Raise errors as a handler does that shares its work out."""

    async def fail(error: Exception) -> None:
        raise error

    async with anyio.create_task_group() as tasks:
        for error in errors:
            tasks.start_soon(fail, error)


async def test_a_tool_error_within_a_task_group_is_the_same(call: Call) -> None:
    async def handler() -> None:
        await in_a_task_group(ToolError("No."))

    assert list((await call(handler)).content) == [TextContent(text="No.")]


async def test_a_protocol_error_within_a_task_group_is_itself(call: Call) -> None:
    async def handler() -> None:
        await in_a_task_group(ProtocolError(-1, "Not now."))

    with pytest.raises(ProtocolError):
        await call(handler)


async def test_a_task_group_that_fails_in_several_ways_is_an_error(call: Call) -> None:
    async def handler() -> None:
        await in_a_task_group(ToolError("No."), RuntimeError("secret"))

    with pytest.raises(ExceptionGroup):
        await call(handler)


@pytest.mark.parametrize(
    "error", [ProtocolError(-1, "Not now."), RuntimeError("secret"), StopIteration(), ProgressError("back")]
)
async def test_every_other_error_is_left_to_whoever_called(call: Call, error: Exception) -> None:
    async def handler() -> None:
        raise error

    # Python itself wraps a StopIteration that leaves a coroutine.
    with pytest.raises(RuntimeError if isinstance(error, StopIteration) else type(error)):
        await call(handler)


async def test_arguments_that_break_the_schema_do_not_reach_the_handler(call: Call) -> None:
    ran = []

    async def handler(book: int) -> None:
        ran.append(book)

    with pytest.raises(InvalidArguments):
        await call(handler, {"book": "one"})
    assert ran == []


async def leaves(kind: str) -> int:
    if kind == "tool error":
        raise ToolError("no")
    if kind == "error":
        raise RuntimeError
    return 1


@pytest.mark.rule("P3")
@pytest.mark.parametrize("arguments", [{"kind": "return"}, {"kind": "tool error"}, {"kind": "error"}, {}])
async def test_after_the_call_the_context_reports_nothing(call: Call, arguments: dict[str, Any]) -> None:
    sent: list[Progress] = []
    ctx = Context(report=sent.append)
    with contextlib.suppress(RuntimeError, InvalidArguments):
        await call(leaves, arguments, ctx)
    await ctx.progress(1)
    assert sent == []


async def test_progress_that_goes_back_fails_the_call_unless_caught(call: Call) -> None:
    async def handler(ctx: Context) -> None:
        await ctx.progress(2)
        await ctx.progress(1)

    with pytest.raises(ProgressError):
        await call(handler)


async def test_a_plain_handler_reports_by_the_sync_face(call: Call) -> None:
    def handler(ctx: Context) -> None:
        ctx.sync.progress(0, total=1)
        ctx.sync.progress(1, total=1)

    sent: list[Progress] = []
    await call(handler, {}, Context(report=sent.append))
    assert sent == [Progress(0, 1), Progress(1, 1)]


async def test_an_outcome_that_breaks_its_schema_is_an_error_for_the_operator(call: Call) -> None:
    async def handler() -> int:
        return "five"  # type: ignore[return-value]

    with pytest.raises(OutputError):
        await call(handler)


@pytest.mark.rule("M24")
def test_codes_that_json_rpc_keeps_are_refused() -> None:
    for code in (-32768, -32700, -32603, -32042, -32020, -32002, -32000):
        with pytest.raises(ValueError, match="reserved"):
            ProtocolError(code, "No.")
    for code in (-32769, -31999, -1, 0, 1, 429):
        assert ProtocolError(code, "No.", {"a": 1}).code == code


def test_tools_are_a_read_only_view() -> None:
    app = App("test", version="1")
    with pytest.raises(TypeError):
        app.tools["x"] = object()  # type: ignore[index]
