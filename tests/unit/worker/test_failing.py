"""A handler that fails, in any way: its client hears of it, and no other call notices."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from mcpfleet.app import Outcome, ProtocolError, ToolError
from mcpfleet.contracts.call import AUTHORED_ERROR, FrameKind
from tests.unit.worker.bench import add, app_of, bench, text_of


@pytest.mark.rule("D3")
async def test_a_tool_error_is_read_by_the_model() -> None:
    async def fail() -> None:
        raise ToolError("There is no such book; search first.")

    async with bench(app_of(fail)) as runs:
        result = await runs.call("fail")
    assert result["isError"] is True
    assert text_of(result) == "There is no such book; search first."


@pytest.mark.rule("M24")
async def test_a_deliberate_error_is_an_error_frame_that_says_so() -> None:
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


@pytest.mark.rule("D3")
async def test_an_exception_is_redacted_and_the_log_has_it_under_the_same_reference() -> None:
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


@pytest.mark.rule("D3")
async def test_the_model_reads_which_arguments_break_the_schema_and_no_handler_runs() -> None:
    ran = []

    async def read(book: int) -> None:
        ran.append(book)

    async with bench(app_of(read)) as runs:
        result = await runs.call("read", {"book": "secret"})
    assert result["isError"] is True
    assert "book" in text_of(result)
    assert "secret" not in text_of(result)
    assert ran == []


@pytest.mark.rule("M39")
async def test_a_broken_output_contract_is_an_internal_error_with_a_reference() -> None:
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
    """A value that JSON cannot hold."""


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
async def test_a_result_that_is_no_json_fails_its_call_alone(handler: Any) -> None:
    """Python has a lone surrogate for a file name that is no UTF-8; and NaN is no JSON."""
    async with bench(app_of(handler, add)) as runs:
        end = await runs.end(runs.start(handler.__name__))
        assert end.body
        assert b"NaN" not in end.body
        assert b"Infinity" not in end.body
        assert (await runs.call("add", {"left": 1, "right": 2}))["structuredContent"] == 3


async def test_a_handler_that_cancels_itself_has_failed() -> None:
    """It waited for a task of its own that was cancelled: its client hears of it all the same."""

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


async def test_a_plain_handler_may_raise_even_what_closes_coroutines() -> None:
    """GeneratorExit that is thrown into what waits ends it without a word."""

    def close() -> None:
        raise GeneratorExit

    async def other() -> str:
        await asyncio.sleep(0.2)
        return "unharmed"

    async with bench(app_of(close, other)) as runs:
        beside = runs.start("other")
        result = await runs.call("close")
        assert text_of(result).startswith("The tool failed")
        assert b"unharmed" in (await runs.end(beside)).body


async def test_a_call_that_ends_with_its_worker_is_uncertain() -> None:
    """The tool may have had its effect, so its client reads neither nothing nor a failure."""

    async def sleep() -> None:
        await asyncio.sleep(60)

    async with bench(app_of(sleep)) as runs:
        held = runs.start("sleep")
        await asyncio.sleep(0.05)
    assert b"uncertain" in runs.ends(held)[0].body
