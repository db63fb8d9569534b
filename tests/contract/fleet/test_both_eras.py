"""Invariant 12: the same application code serves both eras, inline and as a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from mcpfleet.app import App, Context
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.sessions_app import Wish
from tests.contract.fleet.test_cursors import asked
from tests.contract.fleet.visitor import FORM, Visitors
from tests.kit.waiting import pause

TASKS: Mapping[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


def ordering(runs: list[str]) -> App:
    """One handler: it reports progress, does a step once, asks its caller, and may go on as a task."""
    app = App("library", version="1.0.0")

    @app.tool(task="optional", asks={"elicitation.form"})
    async def order(title: str, ctx: Context, later: bool = False) -> dict[str, Any]:
        """Order copies of a book."""
        if later:
            await ctx.defer()
        await ctx.progress(1, 2)

        async def reserve() -> str:
            runs.append(title)
            return f"reserved {title}"

        reserved = await ctx.step("reserve", reserve)
        wish = await ctx.elicit("How many?", Wish, key="wish")
        await ctx.progress(2, 2)
        return {"copies": wish.copies, "reserved": reserved}

    return app


def params(title: str, *, tasks: bool = False, **more: Any) -> dict[str, Any]:
    capabilities = {"elicitation": {}, **(TASKS if tasks else {})}
    arguments = {"title": title, **({"later": True} if tasks else {})}
    return {"name": "order", "arguments": arguments, "_meta": {CAPABILITIES: capabilities}, **more}


@pytest.mark.rule("X76", "invariant 12")
async def test_one_handler_serves_a_modern_call_a_task_and_a_session_of_2025() -> None:
    runs: list[str] = []
    async with LocalFleet(ordering(runs), edges=2, workers=2) as fleet, Visitors(fleet) as visitors:
        https = visitors.https

        async def tell(method: str, told: dict[str, Any], edge: int) -> Any:
            name = told.get("name", told.get("taskId"))
            messages, _ = await asked(https[edge], method, told, name=name)
            return messages[-1]["result"]

        # Inline: its question ends the request, and the answer comes to another edge.
        first = await tell("tools/call", params("Emma"), 0)
        assert first["resultType"] == "input_required"
        answer = {"requestState": first["requestState"], "inputResponses": {"wish": FORM}}
        inline = (await tell("tools/call", params("Emma", **answer), 1))["structuredContent"]

        # As a task: the handle comes first, and the task asks.
        handle = await tell("tools/call", params("Persuasion", tasks=True), 0)
        task = {"taskId": handle["taskId"], "_meta": {CAPABILITIES: {"elicitation": {}, **TASKS}}}
        with anyio.fail_after(20):
            while (state := await tell("tasks/get", task, 1))["status"] == "working":
                await pause()
            assert state["status"] == "input_required"
            await tell("tasks/update", {**task, "inputResponses": {"wish": FORM}}, 0)
            while (state := await tell("tasks/get", task, 1))["status"] in {"working", "input_required"}:
                await pause()
        as_task = state["result"]["structuredContent"]

        # In a session of 2025: its question is a request of the server's, on the call's own stream.
        visitor = await visitors.one()
        visitor.answers["elicitation/create"] = FORM
        visitor.answering_edge = 1
        in_session = (await visitor.call("order", {"title": "Sanditon"}))["structuredContent"]
    assert [each["copies"] for each in (inline, as_task, in_session)] == [3, 3, 3]
    assert [each["reserved"] for each in (inline, as_task, in_session)] == [f"reserved {title}" for title in runs]
    assert runs == ["Emma", "Persuasion", "Sanditon"], "each step ran once"
    assert [each["method"] for each in visitor.asked] == ["elicitation/create"]
