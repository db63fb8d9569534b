"""MCPFLEET_SEALER in a fleet: questions and cursors by a sealer of the operator's own, and what fails when it does."""

from __future__ import annotations

from typing import Any, Final

import anyio
import pytest

from mcpfleet.app import App, Context
from mcpfleet.contracts.sealing import Unsealable
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.sessions_app import Wish
from tests.contract.fleet.test_cursors import asked
from tests.unit.edge.protocol.test_own_sealer import Fine

HERE: Final = "tests.contract.fleet.test_own_sealer"
ENVIRONMENT: Final = {"MCPFLEET_SEALER": f"{HERE}:Switched", "MCPFLEET_PAGE_SIZE": "1"}
failure: list[Exception] = []
"""Each sealing raises this from now on."""


class Hangs(Exception):
    """Raised by nobody: it stands for no answer at all."""


async def fail() -> None:
    """Fail as the test wants it."""
    if failure and isinstance(failure[0], Hangs):
        await anyio.sleep_forever()
    if failure:
        raise failure[0]


class Switched(Fine):
    """Fails when the test wants it."""

    async def seal(self, plain: bytes, associated: bytes) -> bytes:
        await fail()
        return await super().seal(plain, associated)

    async def open(self, sealed: bytes, associated: bytes) -> bytes:
        await fail()
        return await super().open(sealed, associated)


def asking(ran: list[str]) -> App:
    app = App("library", version="1.0.0")

    @app.tool(asks={"elicitation.form"})
    async def order(ctx: Context) -> str:
        """Ask how many."""
        ran.append("order")
        wish = await ctx.elicit("How many?", Wish, key="wish")
        return str(wish.copies)

    @app.tool()
    async def other() -> str:
        """Stand on another page."""
        return "other"

    return app


def call(**params: Any) -> dict[str, Any]:
    capabilities: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    return {"name": "order", "arguments": {}, "_meta": capabilities, **params}


@pytest.mark.rule("X73")
@pytest.mark.parametrize(
    ("error", "before", "after"),
    [
        (Unsealable("away"), (503, -32603), (503, -32603)),
        (Hangs(), (503, -32603), (503, -32603)),
        (RuntimeError("no disk"), (500, -32603), (200, -32603)),
    ],
    ids=["unavailable", "hanging", "failing"],
)
async def test_its_failure_is_told_by_whether_a_handler_ran(
    error: Exception, before: tuple[int, int], after: tuple[int, int]
) -> None:
    failure.clear()
    ran: list[str] = []
    async with LocalFleet(asking(ran), environment=ENVIRONMENT) as fleet, fleet.http() as http:

        async def told(method: str, params: dict[str, Any]) -> Any:
            messages, response = await asked(http, method, params, name=params.get("name"))
            return (response.status_code, messages[-1].get("error", {}).get("code")), messages[-1].get("result")

        status, first = await told("tools/call", call())
        assert (status, ran) == ((200, None), ["order"])
        state = {"requestState": first["requestState"], "inputResponses": {"wish": FORM}}
        status, result = await told("tools/call", call(**state))
        assert (status, result["content"][0]["text"]) == ((200, None), "3")
        _, page = await told("tools/list", {})

        failure.append(error)
        ran.clear()
        assert (await told("tools/call", call(**state)))[0] == before
        assert (await told("tools/list", {"cursor": page["nextCursor"]}))[0] == before
        assert (await told("tools/list", {}))[0] == before
        assert ran == []
        assert (await told("tools/call", call()))[0] == after
        assert ran == ["order"]
    failure.clear()


FORM: Final = {"action": "accept", "content": {"copies": 3}}
