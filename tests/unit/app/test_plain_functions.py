"""Plain functions and the Context: `ctx.sync` in a worker and in a test, and async methods that are not awaited."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import pytest

from mcpfleet.app import Answers, Context, Depends, Outcome, Progress, ProgressError, ToolError
from mcpfleet.app.errors import NotAwaited

Call = Callable[..., Awaitable[Outcome]]
FORM: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}


def reports(ctx: Context) -> int:
    ctx.sync.progress(1, total=2)
    ctx.sync.log("info", "half")
    added: int = ctx.sync.step("add", lambda left: left + 1, 1)
    return added


def asks(ctx: Context) -> str:
    return str(ctx.sync.elicit("Where?", FORM, key="where")["city"])


def test_sync_works_on_a_tests_own_context() -> None:
    sent: list[Progress] = []
    assert reports(Context(report=sent.append)) == 2
    assert sent == [Progress(1, 2)]
    assert asks(Context(asker=Answers(where={"city": "Oslo"}))) == "Oslo"


async def test_sync_works_in_a_test_that_has_an_event_loop() -> None:
    assert reports(Context()) == 2
    with pytest.raises(ProgressError):
        reports_backwards(Context())


def reports_backwards(ctx: Context) -> None:
    ctx.sync.progress(2)
    ctx.sync.progress(1)


def test_sync_outside_the_thread_of_a_running_call_is_an_error() -> None:
    """A worker's reports belong to its event loop."""
    ctx = Context()
    ctx.begin()
    with pytest.raises(RuntimeError):
        ctx.sync.progress(1)


# -- async methods that are not awaited -------------------------------------------------------------------------------


def progress(ctx: Context) -> None:
    ctx.progress(1)  # type: ignore[unused-coroutine]


def log(ctx: Context) -> None:
    ctx.log("info", "x")  # type: ignore[unused-coroutine]


def elicit(ctx: Context) -> Any:
    return ctx.elicit("Where?", FORM)["city"]  # type: ignore[index]


def step(ctx: Context) -> None:
    ctx.step("x", len, "x")  # type: ignore[unused-coroutine]


def resource_updated(ctx: Context) -> None:
    ctx.resource_updated("test://x")  # type: ignore[unused-coroutine]


@pytest.mark.parametrize("handler", [progress, log, elicit, step, resource_updated], ids=lambda each: each.__name__)
async def test_an_async_method_that_a_plain_function_does_not_await_fails_the_call(
    call: Call, handler: Callable[[Context], Any]
) -> None:
    """The text names the place, and the method to call instead; no warning of Python's follows."""
    with pytest.raises(
        NotAwaited, match=rf"{handler.__name__} \(.*\.py:\d+\): .* call `ctx\.sync\.{handler.__name__}`"
    ):
        await call(handler)


async def test_an_error_of_a_handler_that_awaits_all_stays_as_it_is(call: Call) -> None:
    def failing(ctx: Context) -> None:
        ctx.sync.progress(1)
        raise ToolError("No.")

    assert (await call(failing)).is_error


async def test_a_plain_function_may_return_what_the_runner_awaits(call: Call) -> None:
    def passing(ctx: Context) -> Any:
        return ctx.step("add", lambda left: left + 1, 1)

    assert (await call(passing)).structured == 2


async def test_a_plain_dependency_is_watched_too(call: Call) -> None:
    def opening(ctx: Context) -> int:
        ctx.progress(1)  # type: ignore[unused-coroutine]
        return 1

    async def handler(one: Annotated[int, Depends(opening)]) -> int:
        return one

    with pytest.raises(NotAwaited, match=r"opening \(.*ctx\.sync\.progress"):
        await call(handler)
