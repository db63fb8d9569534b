"""Frames of a call beside its result: questions, log messages, and missing capabilities of its client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpfleet.contracts.call import LACKING
from tests.contract.bus.fabric import Fabric
from tests.contract.calls.worker_harness import worker_harness
from tests.kit.waiting import until


@pytest.mark.rule("M50")
async def test_a_question_is_the_calls_end_and_frees_its_slot(fabric: Fabric) -> None:
    async with worker_harness(fabric, slots=1, queue=0) as at:
        at.place("ask", {}, capabilities={"roots": {}})
        asked = json.loads((await at.edge.said("ask")).body)
        assert asked == {
            "inputRequests": {"roots": {"method": "roots/list", "params": {}}},
            "memory": {"answers": {}, "steps": {}},
        }
        assert at.edge.kinds() == ["ask"]
        answers: dict[str, Any] = {"roots": {"roots": []}}
        at.place("ask", {}, call="2", capabilities={"roots": {}}, answers=answers, memory=asked["memory"])
        end = await at.edge.said("result", "2")
        assert json.loads(end.body)["content"][0]["text"] == "0 roots"


@pytest.mark.rule("M50")
async def test_a_question_that_was_lost_is_sent_again(fabric: Fabric) -> None:
    """The edge says that it misses the call, and the worker has kept the end, as it keeps every end."""
    async with worker_harness(fabric, alive_interval=0.1) as at:
        at.place("ask", {}, capabilities={"roots": {}})
        await at.edge.said("ask")
        at.edge.answer = at.edge.answer and at.edge.answer.model_copy(update={"missing": ("1",)})
        await at.edge.said("ask", times=2)


@pytest.mark.rule("D16")
async def test_the_edge_hears_which_capability_its_client_lacks(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        at.place("ask", {})
        assert (await at.edge.said("error")).header == f"{LACKING} roots"


@pytest.mark.rule("M49")
async def test_log_messages_precede_the_result(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        at.place("say", {}, log_level="info")
        await at.edge.said("result")
        assert at.edge.kinds() == ["log", "result"]
        assert json.loads((await at.edge.said("log")).body) == {"level": "info", "logger": "site", "data": "said"}
        at.place("say", {}, call="2")
        await at.edge.said("result", "2")
        assert at.edge.kinds("2") == ["result"]


async def test_a_prompt_that_a_worker_gives_up_is_an_error_and_no_tool_result(fabric: Fabric) -> None:
    async with worker_harness(fabric) as at:
        at.place("wait", {"name": "a"})
        await at.running("a")
        at.actor.give_up()
        await until(lambda: "error" in at.edge.kinds())
        assert b"-32603" in (await at.edge.said("error")).body
