"""The results and reports of a handler, as the frames of its call."""

from __future__ import annotations

import threading

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from mcpfleet.app import Context, Outcome, ProtocolError, TextContent, ToolError
from mcpfleet.contracts.call import CallBody, FrameKind
from mcpfleet.contracts.principal import Principal
from mcpfleet.telemetry.trace import current
from mcpfleet.wire.reply import RESULT_HEAD
from tests.unit.worker.bench import add, app_of, bench, text_of


@pytest.mark.rule("M18")
async def test_a_result_is_complete_and_begins_as_the_edge_splices_it() -> None:
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


@pytest.mark.rule("M38")
async def test_null_is_structured_content() -> None:
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


# -- progress --------------------------------------------------------------------------------------------------------


async def steps(ctx: Context) -> str:
    await ctx.progress(0, total=100, message="begun")
    await ctx.progress(50)
    await ctx.progress(50)
    await ctx.progress(100.5)
    return "done"


@pytest.mark.rule("M60")
async def test_reports_leave_before_the_end_in_their_order() -> None:
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


@pytest.mark.rule("P1")
async def test_without_a_token_nothing_is_reported() -> None:
    async with bench(app_of(steps)) as runs:
        held = runs.start("steps")
        await runs.end(held)
        assert runs.reports(held) == []


@pytest.mark.rule("P3")
async def test_a_report_after_the_end_says_nothing() -> None:
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
