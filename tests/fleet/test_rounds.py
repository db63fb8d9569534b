"""A handler that asks its caller: each round may come to another edge and another worker, while keys rotate."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult, ErrorData, TextContent

from mcpfleet.testing.fleet import Fleet
from tests.kit.raw import Answer, connected
from tests.kit.waiting import until

APP = Path(__file__).with_name("asking.py")
CAPABLE: Mapping[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
ANSWERS: Mapping[str, Any] = {
    "size": {"size": "large"},
    "colour": {"name": "blue"},
    "words-large": {"text": "hello"},
}


def key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


@asynccontextmanager
async def fleet(folder: Path, **settings: str) -> AsyncIterator[Fleet]:
    """Three edges and two workers, whose keys are in a file of the test's."""
    keys, steps = folder / "keys", folder / "steps"
    keys.write_text(key())
    steps.touch()
    environment = {"MCPFLEET_SEAL_KEYS": str(keys), "ASKING_STEPS": str(steps), **settings}
    async with Fleet(APP, edges=3, workers=2, environment=environment) as running:
        yield running


async def call(url: str, item: str = "cup", **members: Any) -> Answer:
    """Call the tool as a client that can fill in forms."""
    async with connected(url) as connection:
        params = {"name": "order", "arguments": {"item": item}, "_meta": CAPABLE, **members}
        await connection.send("tools/call", params)
        return await connection.answer()


def answers(result: Mapping[str, Any]) -> dict[str, Any]:
    """Answer what a result asks."""
    return {asked: {"action": "accept", "content": ANSWERS[asked]} for asked in result["inputRequests"]}


@pytest.mark.rule("M50")
async def test_rounds_go_on_at_any_edge_and_worker_while_keys_rotate(tmp_path: Path) -> None:
    rotating = {"MCPFLEET_SEAL_KEYS_REREAD": "0.1", "MCPFLEET_SEAL_KEYS_ADOPTED": "0.1"}
    async with fleet(tmp_path, **rotating) as running:
        first = (await call(running.urls[0])).message["result"]
        assert first["resultType"] == "input_required"
        assert set(first["inputRequests"]) == {"size", "colour"}
        keys = tmp_path / "keys"
        keys.write_text(f"{key()}\n{keys.read_text()}")
        await until(lambda: running.logs().count("seal keys read") == 3, within=10)
        second = (
            await call(running.urls[1], inputResponses=answers(first), requestState=first["requestState"])
        ).message["result"]
        assert list(second["inputRequests"]) == ["words-large"]
        assert second["requestState"] != first["requestState"]
        third = (
            await call(running.urls[2], inputResponses=answers(second), requestState=second["requestState"])
        ).message["result"]
    assert third["content"][0]["text"] == "reserved cup: large, blue, hello"
    assert (tmp_path / "steps").read_text().count("cup") == 1, "M53: a step is remembered over the rounds"


@pytest.mark.rule("M52")
async def test_a_state_is_refused_where_it_does_not_belong_always_in_the_same_words(tmp_path: Path) -> None:
    async with fleet(tmp_path, MCPFLEET_STATE_LASTS="1.0") as running:
        asked = (await call(running.urls[0])).message["result"]
        state = asked["requestState"]
        refused = [
            await call(running.urls[1], requestState=state + "-TAMPERED"),
            await call(running.urls[2], item="plate", requestState=state),
        ]

        async def expired() -> bool:
            refused.append(await call(running.urls[0], requestState=state))
            return refused[-1].status == 400

        while not await expired():
            refused.pop()
    told = {(each.status, each.message["error"]["code"], each.message["error"]["message"]) for each in refused}
    assert told == {(400, -32602, "Invalid params: bad request state")}


@pytest.mark.rule("M51")
async def test_a_wrong_answer_is_asked_again_and_a_valid_one_needs_no_state(tmp_path: Path) -> None:
    async with fleet(tmp_path) as running:
        asked = (await call(running.urls[0])).message["result"]
        wrong = {"size": {"action": "accept", "content": {"size": "huge"}}, "colour": 12345, "unknown": {}}
        again = (await call(running.urls[1], inputResponses=wrong, requestState=asked["requestState"])).message[
            "result"
        ]
        assert set(again["inputRequests"]) == {"size", "colour"}
        everything = {each: {"action": "accept", "content": content} for each, content in ANSWERS.items()}
        done = (await call(running.urls[2], inputResponses=everything)).message["result"]
    assert done["content"][0]["text"] == "reserved cup: large, blue, hello"


@pytest.mark.rule("D16")
async def test_the_official_client_is_asked_and_answers(tmp_path: Path) -> None:
    async def fill_in(context: Any, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        del context
        assert isinstance(params, ElicitRequestFormParams)
        fields = params.requested_schema["properties"]
        content = {"size": "large", "name": "blue", "text": "hello"}
        return ElicitResult(action="accept", content={name: content[name] for name in fields})

    async with fleet(tmp_path) as running, Client(running.urls[0], elicitation_callback=fill_in) as client:
        result = await client.call_tool("order", {"item": "cup"})
    assert result.content == [TextContent(text="reserved cup: large, blue, hello")]
