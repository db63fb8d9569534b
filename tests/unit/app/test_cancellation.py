"""How a handler hears that its call is cancelled (P7, P8)."""

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

from mcpfleet.app import CancelSignal
from mcpfleet.app.cancellation import MAX_CALLBACKS


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield executor


@pytest.mark.rule("P7")
def test_it_is_false_until_the_cancel_and_true_ever_after() -> None:
    signal = CancelSignal()
    assert not signal
    signal.cancel()
    signal.cancel()
    assert signal


async def test_waiting_ends_with_the_cancel() -> None:
    signal = CancelSignal()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(signal.wait)
            await anyio.wait_all_tasks_blocked()
            signal.cancel()


async def test_waiting_for_a_cancel_of_the_past_ends_at_once() -> None:
    signal = CancelSignal()
    signal.cancel()
    with anyio.fail_after(5):
        await signal.wait()


async def test_a_cancel_from_another_thread_wakes_the_loop() -> None:
    signal = CancelSignal()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(signal.wait)
            await anyio.wait_all_tasks_blocked()
            threading.Thread(target=signal.cancel).start()


@pytest.mark.rule("P8")
async def test_callbacks_run_off_the_event_loop(executor: ThreadPoolExecutor) -> None:
    signal = CancelSignal(executor)
    threads: list[threading.Thread] = []
    signal.on_cancel(lambda: threads.append(threading.current_thread()))
    signal.cancel()
    await signal.finished()
    assert threads != []
    assert threads[0] is not threading.current_thread()


@pytest.mark.rule("P8")
async def test_callbacks_are_waited_for(executor: ThreadPoolExecutor) -> None:
    signal = CancelSignal(executor)
    go_on = threading.Event()
    ran: list[bool] = []
    signal.on_cancel(lambda: ran.append(go_on.wait(5)))
    signal.cancel()
    asyncio.get_running_loop().call_soon(go_on.set)
    await signal.finished()
    assert ran == [True]


@pytest.mark.rule("P8")
async def test_nothing_to_wait_for_without_callbacks(executor: ThreadPoolExecutor) -> None:
    signal = CancelSignal(executor)
    signal.cancel()
    with anyio.fail_after(5):
        await signal.finished()


@pytest.mark.rule("P8")
def test_registering_late_runs_the_callback() -> None:
    signal = CancelSignal()
    signal.cancel()
    ran: list[str] = []
    signal.on_cancel(lambda: ran.append("late"))
    assert ran == ["late"]


@pytest.mark.rule("P8")
def test_closing_a_registration_takes_the_callback_back() -> None:
    signal = CancelSignal()
    ran: list[str] = []
    with signal.on_cancel(lambda: ran.append("closed")):
        pass
    signal.cancel()
    assert ran == []


@pytest.mark.rule("P8")
def test_closing_takes_back_what_is_cancelled_and_has_not_begun(executor: ThreadPoolExecutor) -> None:
    signal = CancelSignal(executor)
    go_on, ran = threading.Event(), list[str]()
    signal.on_cancel(lambda: go_on.wait(5))
    second = signal.on_cancel(lambda: ran.append("second"))
    signal.cancel()
    second.close()
    go_on.set()
    executor.shutdown()
    assert ran == []


def test_a_callback_runs_once_however_often_it_is_cancelled() -> None:
    signal = CancelSignal()
    ran: list[str] = []
    signal.on_cancel(lambda: ran.append("once"))
    signal.cancel()
    signal.cancel()
    assert ran == ["once"]


def test_a_callback_that_fails_is_logged_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    signal = CancelSignal()
    ran: list[str] = []
    signal.on_cancel(lambda: 1 / 0)
    signal.on_cancel(lambda: ran.append("second"))
    signal.cancel()
    assert ran == ["second"]
    assert "ZeroDivisionError" in caplog.text


async def test_a_callback_sees_the_context_variables_of_its_registration(executor: ThreadPoolExecutor) -> None:
    signal = CancelSignal(executor)
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace")
    seen: list[str] = []
    trace.set("of the call")
    signal.on_cancel(lambda: seen.append(trace.get()))
    trace.set("later")
    signal.cancel()
    await signal.finished()
    assert seen == ["of the call"]


@pytest.mark.rule("P8")
def test_the_callbacks_that_wait_are_bounded() -> None:
    signal = CancelSignal()
    for _ in range(MAX_CALLBACKS):
        signal.on_cancel(lambda: None)
    with pytest.raises(RuntimeError, match=str(MAX_CALLBACKS)):
        signal.on_cancel(lambda: None)
