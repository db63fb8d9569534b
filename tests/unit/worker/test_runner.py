"""What becomes of a call in the handlers' loop: its result, its errors, its deadline and its cancel."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from mcpfleet.app import App, Context, Outcome, ProtocolError, TextContent, ToolError
from mcpfleet.contracts.call import AUTHORED_ERROR, CallBody, FrameKind
from mcpfleet.contracts.principal import Principal
from mcpfleet.telemetry.trace import current
from mcpfleet.wire.reply import RESULT_HEAD
from tests.unit.worker.bench import Bench, bench


def app_of(*handlers: Any, **options: Any) -> App:
    """An application of these tools, all declared alike."""
    app = App("test", version="1")
    for handler in handlers:
        app.tool(**options)(handler)
    return app


async def add(left: int, right: int) -> int:
    return left + right


def text_of(result: Any) -> str:
    assert len(result["content"]) == 1
    text: str = result["content"][0]["text"]
    return text


# -- results ---------------------------------------------------------------------------------------------------------


async def test_m18_a_result_is_complete_and_begins_as_the_edge_splices_it() -> None:
    async with bench(app_of(add)) as runs:
        held = runs.start("add", {"left": 1, "right": 2})
        end = await runs.end(held)
        assert (end.key, end.kind, end.header) == (held.key, FrameKind.RESULT, None)
        assert end.body.startswith(RESULT_HEAD)
        result = await runs.call("add", {"left": 1, "right": 2})
    assert result == {
        "_meta": {},
        "resultType": "complete",
        "content": [{"type": "text", "text": "3"}],
        "structuredContent": 3,
        "isError": False,
    }


async def test_m38_null_is_structured_content() -> None:
    async def find(book: int) -> int | None:
        return None

    async with bench(app_of(find)) as runs:
        assert (await runs.call("find", {"book": 1}))["structuredContent"] is None


async def test_a_result_keeps_the_meta_that_its_handler_gives_it() -> None:
    async def find() -> Outcome:
        return Outcome((TextContent(text="x"),), meta={"com.example/shelf": 7})

    async with bench(app_of(find)) as runs:
        assert (await runs.call("find"))["_meta"] == {"com.example/shelf": 7}


async def test_a_result_over_the_limit_is_an_error_that_names_the_setting() -> None:
    async def write(size: int) -> str:
        return "x" * size

    async with bench(app_of(write), result_limit=1000) as runs:
        assert (await runs.call("write", {"size": 800}))["isError"] is False
        result = await runs.call("write", {"size": 1001})
    assert result["isError"] is True
    assert "MCPFLEET_RESULT_LIMIT" in text_of(result)
    assert "xx" not in text_of(result)


async def test_calls_run_side_by_side() -> None:
    both = anyio.Event()
    running = 0

    async def meet() -> str:
        nonlocal running
        running += 1
        if running == 2:
            both.set()
        await both.wait()
        return "met"

    async with bench(app_of(meet)) as runs:
        calls = [runs.start("meet"), runs.start("meet")]
        assert [(await runs.end(call)).kind for call in calls] == [FrameKind.RESULT] * 2


async def test_a_handler_sees_who_calls_and_how_long_it_has() -> None:
    seen: list[Context] = []

    async def look(ctx: Context) -> None:
        seen.append(ctx)

    body = CallBody(
        {},
        capabilities={"sampling": {}},
        client={"name": "inspector", "version": "1"},
        principal=Principal(subject="ann", scopes=("read",)),
    )
    async with bench(app_of(look)) as runs:
        held = runs.start("look", body=body.write(), lasts=3.0)
        await runs.end(held)
    [ctx] = seen
    assert ctx.principal.subject == "ann"
    assert ctx.client.info is not None
    assert ctx.client.info.name == "inspector"
    assert ctx.client.capabilities.sampling is not None
    assert ctx.deadline == held.deadline


async def test_a_handlers_log_lines_belong_to_the_calls_trace() -> None:
    async def look() -> str:
        trace = current.get()
        return trace.trace_id if trace else ""

    async with bench(app_of(look)) as runs:
        held = runs.start("look")
        assert held.trace.trace_id.encode() in (await runs.end(held)).body


# -- errors ----------------------------------------------------------------------------------------------------------


async def test_d3_a_tool_error_is_read_by_the_model() -> None:
    async def fail() -> None:
        raise ToolError("There is no such book; search first.")

    async with bench(app_of(fail)) as runs:
        result = await runs.call("fail")
    assert result["isError"] is True
    assert text_of(result) == "There is no such book; search first."


async def test_m24_a_deliberate_error_is_an_error_frame_that_says_so() -> None:
    """The edge answers it with HTTP 400."""

    async def refuse() -> None:
        raise ProtocolError(-1, "Not now.", {"after": 5})

    async with bench(app_of(refuse)) as runs:
        error, line = await runs.error("refuse")
    assert (error, line) == ({"code": -1, "message": "Not now.", "data": {"after": 5}}, AUTHORED_ERROR)


async def test_an_error_without_data_has_no_such_member() -> None:
    async def refuse() -> None:
        raise ProtocolError(7, "Not now.")

    async with bench(app_of(refuse)) as runs:
        assert (await runs.error("refuse"))[0] == {"code": 7, "message": "Not now."}


async def test_d3_an_exception_is_redacted_and_the_log_has_it_under_the_same_reference() -> None:
    async def fail() -> None:
        raise RuntimeError("the secret of the shelf")

    async with bench(app_of(fail)) as runs:
        held = runs.start("fail")
        body = (await runs.end(held)).body
    assert b"secret" not in body
    assert held.trace.trace_id.encode() in body
    assert b'"isError":true' in body
    [line] = [line for line in runs.log.entries if line["log_level"] == "error"]
    assert (line["tool"], type(line["exc_info"])) == ("fail", RuntimeError)


async def test_d3_arguments_that_break_the_schema_are_told_to_the_model_and_the_handler_does_not_run() -> None:
    ran = []

    async def read(book: int) -> None:
        ran.append(book)

    async with bench(app_of(read)) as runs:
        result = await runs.call("read", {"book": "secret"})
    assert result["isError"] is True
    assert "book" in text_of(result)
    assert "secret" not in text_of(result)
    assert ran == []


async def test_m39_a_broken_output_contract_is_an_internal_error_with_a_reference() -> None:
    """Nobody chose this error, so it is not an authored one."""

    async def count() -> int:
        return "the secret of the shelf"  # type: ignore[return-value]

    async with bench(app_of(count)) as runs:
        held = runs.start("count")
        end = await runs.end(held)
    assert (end.kind, end.header) == (FrameKind.ERROR, None)
    assert b"-32603" in end.body
    assert held.trace.trace_id.encode() in end.body
    assert b"secret" not in end.body


async def test_a_body_that_no_edge_writes_fails_its_call_alone() -> None:
    async with bench(app_of(add)) as runs:
        assert (await runs.call("add", body=b"[]"))["isError"] is True
        assert (await runs.call("add", {"left": 1, "right": 2}))["structuredContent"] == 3


class Unwritable:
    """Something that no JSON can say."""


async def bad_meta() -> Outcome:
    return Outcome(meta={"com.example/x": Unwritable()})


async def bad_data() -> None:
    raise ProtocolError(-1, "Not now.", {"x": Unwritable()})


async def bad_message() -> None:
    raise ProtocolError(-1, "file \udcff")


async def bad_text() -> None:
    raise ToolError("file \udcff is not there")


async def bad_number() -> None:
    raise ProtocolError(-1, "Not now.", {"x": float("nan")})


async def bad_meta_number() -> Outcome:
    return Outcome(meta={"com.example/x": float("inf")})


@pytest.mark.parametrize("handler", [bad_meta, bad_data, bad_message, bad_text, bad_number, bad_meta_number])
async def test_what_cannot_be_written_as_json_fails_its_call_alone(handler: Any) -> None:
    """A name of a file that is no UTF-8 has a lone surrogate in Python; NaN is no JSON."""
    async with bench(app_of(handler, add)) as runs:
        end = await runs.end(runs.start(handler.__name__))
        assert end.body
        assert b"NaN" not in end.body
        assert b"Infinity" not in end.body
        assert (await runs.call("add", {"left": 1, "right": 2}))["structuredContent"] == 3


async def test_a_handler_that_cancels_itself_has_failed() -> None:
    """It waited for a task of its own that was cancelled: its client is told something all the same."""

    async def fail() -> None:
        raise asyncio.CancelledError

    async with bench(app_of(fail)) as runs:
        assert (await runs.call("fail"))["isError"] is True


def test_a_handler_that_calls_sys_exit_has_failed_and_its_worker_goes_on() -> None:
    """Command-line libraries do so; one client's call must not end everybody's."""
    script = """
        import sys
        import anyio
        from tests.unit.worker.bench import bench
        from mcpfleet.app import App

        app = App("test", version="1")

        @app.tool()
        async def leave() -> None:
            sys.exit("usage: …")

        async def main() -> None:
            async with bench(app) as runs:
                result = await runs.call("leave")
                print("error" if result["isError"] else result)

        anyio.run(main)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.strip() == "error", done.stderr


# -- deadlines and cancels -------------------------------------------------------------------------------------------


async def forever(ctx: Context) -> None:
    await anyio.sleep_forever()


async def test_m59_a_handler_has_at_most_its_tools_time_and_the_model_reads_so() -> None:
    async with bench(app_of(forever, timeout=0.1)) as runs:
        result = await runs.call("forever")
    assert result["isError"] is True
    assert "0.1 s" in text_of(result)


async def test_a_handler_has_at_most_the_time_that_its_caller_waits() -> None:
    async with bench(app_of(forever, timeout=60)) as runs:
        began = time.monotonic()
        assert (await runs.call("forever", lasts=0.1))["isError"] is True
        assert time.monotonic() - began < 5


async def test_p7_the_deadline_fires_the_cancel_token() -> None:
    fired = threading.Event()

    async def wait(ctx: Context) -> None:
        ctx.cancelled.on_cancel(fired.set)
        await anyio.sleep_forever()

    async with bench(app_of(wait, timeout=0.1)) as runs:
        await runs.call("wait")
    assert fired.is_set()


async def test_a_timeout_of_the_handlers_own_is_an_exception_like_any_other() -> None:
    """An upstream was slow; the tool's time is not over, and nothing was cancelled."""
    contexts: list[Context] = []

    async def fetch(ctx: Context) -> None:
        contexts.append(ctx)
        raise TimeoutError("the upstream is slow")

    async with bench(app_of(fetch, timeout=60)) as runs:
        held = runs.start("fetch")
        body = (await runs.end(held)).body
    assert b"did not finish within 60 s" not in body
    assert held.trace.trace_id.encode() in body
    assert not contexts[0].cancelled


async def test_p7_a_normal_end_does_not_fire_the_cancel_token() -> None:
    contexts: list[Context] = []

    async def look(ctx: Context) -> None:
        contexts.append(ctx)

    async with bench(app_of(look)) as runs:
        await runs.call("look")
    assert not contexts[0].cancelled


async def cancelled(runs: Bench, tool: str, started: anyio.Event) -> Any:
    """Start a call, cancel it once its handler runs, and return it."""
    held = runs.start(tool)
    with anyio.fail_after(5):
        await started.wait()
    runs.runner.obey(held.key)
    return held


async def test_a_cancel_stops_an_async_handler_where_it_waits() -> None:
    started, cleaned = anyio.Event(), []

    async def wait() -> None:
        try:
            started.set()
            await anyio.sleep_forever()
        finally:
            cleaned.append(True)

    async with bench(app_of(wait)) as runs:
        await runs.end(await cancelled(runs, "wait", started))
        assert cleaned == [True]


async def test_p8_a_cancelled_call_ends_when_its_plain_handler_has_really_returned() -> None:
    started, go_on, returned = anyio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(started.set)
        go_on.wait(5)
        returned.set()

    async with bench(app_of(work)) as runs:
        held = await cancelled(runs, "work", started)
        await anyio.wait_all_tasks_blocked()
        assert runs.ends(held) == []
        go_on.set()
        await runs.end(held)
        assert returned.is_set()


async def test_p8_a_cancelled_call_ends_when_its_callbacks_have_returned() -> None:
    started, go_on, returned = anyio.Event(), threading.Event(), threading.Event()

    def undo() -> None:
        go_on.wait(5)
        returned.set()

    async def wait(ctx: Context) -> None:
        ctx.cancelled.on_cancel(undo)
        started.set()
        await anyio.sleep_forever()

    async with bench(app_of(wait)) as runs:
        held = await cancelled(runs, "wait", started)
        await anyio.wait_all_tasks_blocked()
        assert runs.ends(held) == []
        go_on.set()
        await runs.end(held)
        assert returned.is_set()


async def test_a_plain_handler_looks_at_its_cancel_token() -> None:
    started = anyio.Event()
    loop = asyncio.get_running_loop()

    def work(ctx: Context) -> str:
        loop.call_soon_threadsafe(started.set)
        until = time.monotonic() + 5
        while not ctx.cancelled and time.monotonic() < until:
            time.sleep(0.001)
        return "left early"

    async with bench(app_of(work)) as runs:
        end = await runs.end(await cancelled(runs, "work", started))
        assert b"left early" in end.body or not end.body


async def test_a_cancel_of_a_call_that_has_ended_is_harmless() -> None:
    async with bench(app_of(add)) as runs:
        held = runs.start("add", {"left": 1, "right": 2})
        await runs.end(held)
        runs.runner.obey(held.key)
        assert (await runs.call("add", {"left": 1, "right": 2}))["structuredContent"] == 3
        assert len(runs.ends(held)) == 1


async def test_a_cancel_stops_its_own_call_alone() -> None:
    started, release = anyio.Event(), anyio.Event()

    async def wait(mark: bool = False) -> str:
        if mark:
            started.set()
        await release.wait()
        return "done"

    async with bench(app_of(wait)) as runs:
        other = runs.start("wait")
        held = runs.start("wait", {"mark": True})
        await started.wait()
        runs.runner.obey(held.key)
        await runs.end(held)
        assert runs.ends(other) == []
        release.set()
        assert b"done" in (await runs.end(other)).body


# -- progress --------------------------------------------------------------------------------------------------------


async def steps(ctx: Context) -> str:
    await ctx.progress(0, total=100, message="begun")
    await ctx.progress(50)
    await ctx.progress(50)
    await ctx.progress(100.5)
    return "done"


async def test_m60_reports_leave_before_the_end_in_their_order() -> None:
    """P2: greater is sent, equal is dropped."""
    async with bench(app_of(steps)) as runs:
        held = runs.start("steps", wants_progress=True)
        await runs.end(held)
        assert runs.reports(held) == [
            {"progress": 0, "total": 100, "message": "begun"},
            {"progress": 50},
            {"progress": 100.5},
        ]
        assert runs.frames[-1] is runs.ends(held)[0]


async def test_p1_without_a_token_nothing_is_reported() -> None:
    async with bench(app_of(steps)) as runs:
        held = runs.start("steps")
        await runs.end(held)
        assert runs.reports(held) == []


async def test_p3_a_report_after_the_end_says_nothing() -> None:
    contexts: list[Context] = []

    async def keep(ctx: Context) -> None:
        contexts.append(ctx)
        await ctx.progress(1)

    async with bench(app_of(keep)) as runs:
        held = runs.start("keep", wants_progress=True)
        await runs.end(held)
        await contexts[0].progress(2)
        assert runs.reports(held) == [{"progress": 1}]


async def test_a_plain_handler_reports_from_its_thread() -> None:
    def work(ctx: Context) -> None:
        ctx.sync.progress(1, total=2)
        ctx.sync.progress(2, total=2)

    async with bench(app_of(work)) as runs:
        held = runs.start("work", wants_progress=True)
        await runs.end(held)
        assert runs.reports(held) == [{"progress": 1, "total": 2}, {"progress": 2, "total": 2}]


# -- bounds and counting ---------------------------------------------------------------------------------------------


async def test_plain_handlers_share_the_workers_threads() -> None:
    running, most = 0, 0
    lock, both = threading.Lock(), threading.Event()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 2:
                both.set()
        both.wait(5)
        with lock:
            running -= 1

    async with bench(app_of(work), threads=2) as runs:
        for held in [runs.start("work") for _ in range(6)]:
            await runs.end(held)
    assert most == 2


async def test_durations_are_counted_by_tool_and_kind_of_error() -> None:
    async def fail(kind: str) -> None:
        raise {"tool": ToolError("x"), "other": KeyError("x"), "protocol": ProtocolError(-7, "x")}[kind]

    async with bench(app_of(add, fail)) as runs:
        await runs.call("add", {"left": 1, "right": 2})
        for kind in ("tool", "other"):
            await runs.call("fail", {"kind": kind})
        await runs.error("fail", {"kind": "protocol"})
        await anyio.lowlevel.checkpoint()
        labels = {point.labels for point in runs.instruments.handler_duration.read().points}
    assert labels == {("add", ""), ("fail", "tool_error"), ("fail", "KeyError"), ("fail", "-7")}
