"""Calls for their outcome only: the handler runs as for a read, and what it returns goes nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.app import App, Context, ToolError, question
from mcpfleet.app.handler import CallNext, Invocation
from mcpfleet.contracts.call import AUTHORED_ERROR, LACKING, NOT_FOUND, REFUSED, FrameKind
from mcpfleet.worker.work import Purpose
from tests.kit.refusals import refuse
from tests.unit.worker.bench import Bench, bench, held_call

URI = "library://books/{how}"


def library() -> App:
    app = App("test", version="1")

    @app.resource(URI, may_ask={"roots"})
    async def book(how: str, ctx: Context) -> str | None:
        refuse(how, "library://books/found")
        if how == "asks":
            await ctx.ask(question.roots(key="roots"))
        return None if how == "none" else "x" * 1_000_000

    return app


async def outcome(runs: Bench, how: str, **asked: Any) -> tuple[FrameKind, bytes, str | None]:
    """The frame that ends a call."""
    held = held_call(runs.app, URI, uri=f"library://books/{how}", **asked)
    held.purpose = Purpose.OUTCOME
    runs.runner.obey(held)
    end = await runs.end(held)
    return end.kind, end.body, end.header


@pytest.mark.rule("S21")
async def test_a_result_that_nobody_reads_is_not_written_and_has_no_limit() -> None:
    async with bench(library(), result_limit=1000) as runs:
        assert await outcome(runs, "long") == (FrameKind.RESULT, b"", None)
        assert runs.log.entries == []
        held = runs.start(URI, uri="library://books/said")
        assert (await runs.end(held)).header is None, "a read that a client waits for is as it was"


@pytest.mark.rule("S21")
@pytest.mark.parametrize(
    ("how", "line"),
    [("found", NOT_FOUND), ("none", NOT_FOUND), ("said", REFUSED), ("coded", AUTHORED_ERROR), ("failed", None)],
)
async def test_a_refusal_on_purpose_is_told_from_a_failure(how: str, line: str | None) -> None:
    async with bench(library()) as runs:
        kind, _, header = await outcome(runs, how)
        assert (kind, header) == (FrameKind.ERROR, line)


@pytest.mark.rule("S21")
async def test_a_handler_that_asks_its_caller_has_not_let_it_read() -> None:
    async with bench(library()) as runs:
        kind, _, header = await outcome(runs, "asks")
        assert kind is FrameKind.ERROR
        assert header is not None
        assert header.startswith(LACKING)
        assert await outcome(runs, "asks", capabilities={"roots": {}}) == (FrameKind.ASK, b"", None)


@pytest.mark.rule("S21")
async def test_an_interceptor_decides_as_it_does_for_a_read() -> None:
    app = library()
    seen: list[tuple[str, str | None]] = []

    @app.interceptor
    async def guard(invocation: Invocation, call_next: CallNext) -> object:
        seen.append((invocation.kind, invocation.uri))
        raise ToolError("not today")

    async with bench(app) as runs:
        assert (await outcome(runs, "long"))[2] == REFUSED
    assert seen == [("template", "library://books/long")]
