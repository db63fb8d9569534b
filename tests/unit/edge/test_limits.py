"""Limits at an edge: small lots of authorization's windows, asked for once however many wait."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import anyio
import pytest
import structlog

from mcpfleet.bus.errors import Unavailable
from mcpfleet.contracts.authorization import AuthorizationClient, TakeFromLimit, Taken
from mcpfleet.contracts.manifest import Definition, Rate
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.edge.access.limits import Limits
from mcpfleet.edge.settings import EdgeSettings, rate_of
from mcpfleet.wire.errors import Rejection

ANN = Principal(subject="ann", client="app")
BOB = Principal(subject="bob", client="app", tenant="acme")
EDGE = "e" * 16


def tool(rate: Rate | None = None, name: str = "search") -> Definition:
    return Definition(kind="tool", name=name, wire={"name": name, "inputSchema": {}}, rate=rate)


class Windows(AuthorizationClient):
    """Stands where the bus begins: one window for each key, that never ends."""

    def __init__(self, rest: float = 60.0) -> None:
        self.asked: list[TakeFromLimit] = []
        self.used: Counter[str] = Counter()
        self.rest = rest
        self.is_away = False
        self.go_on = anyio.Event()
        self.go_on.set()

    async def take(self, request: TakeFromLimit) -> Taken:
        self.asked.append(request)
        await self.go_on.wait()
        if self.is_away:
            raise Unavailable("authorization.limits")
        granted = min(request.wanted, request.limit - self.used[request.key])
        self.used[request.key] += granted
        return Taken(granted=granted, rest=self.rest)


def limits(windows: Windows, **settings: Any) -> Limits:
    off = {"rate_requests": "none", "rate_tools": "none", "rate_completions": "none", "rate_anonymous": "none"}
    return Limits(windows, EdgeSettings(**{**off, **settings}), edge=EDGE, log=structlog.get_logger())


async def refusal(made: Limits, principal: Principal = ANN, definition: Definition | None = None) -> Rejection:
    with pytest.raises(Rejection) as raised:
        await made.take_tool("mcp", principal, definition or tool())
    return raised.value


async def test_who_has_no_limit_asks_nobody() -> None:
    windows = Windows()
    made = limits(windows)
    await made.take_request("mcp", ANN)
    await made.take_tool("mcp", ANN, tool())
    await made.take_completion("mcp", ANN)
    assert windows.asked == []


async def test_m40_tool_calls_and_completions_have_a_limit_by_default() -> None:
    windows = Windows()
    made = Limits(windows, EdgeSettings(), edge=EDGE, log=structlog.get_logger())
    await made.take_tool("mcp", ANN, tool())
    await made.take_completion("mcp", ANN)
    assert [(asked.limit, asked.seconds) for asked in windows.asked] == [(6000, 60), (6000, 60)]
    assert len(windows.used) == 2
    await made.take_tool("mcp", ANONYMOUS, tool())
    await made.take_completion("mcp", ANONYMOUS)
    await made.take_request("mcp", ANN)
    assert len(windows.asked) == 2


async def test_d4_beyond_the_limit_is_429_with_the_rest_of_the_window() -> None:
    windows = Windows(rest=41.5)
    made = limits(windows, rate_tools="3/60")
    for _ in range(3):
        await made.take_tool("mcp", ANN, tool())
    rejection = await refusal(made)
    assert (rejection.status, rejection.code) == (429, -31999)
    assert rejection.headers["Retry-After"] == "42"
    assert rejection.data == {"retryAfter": 42}
    count = len(windows.asked)
    await refusal(made)
    assert len(windows.asked) == count, "a window that is full is not asked for again"


async def test_a_window_that_is_over_is_asked_for_again() -> None:
    windows = Windows(rest=0.05)
    made = limits(windows, rate_tools="1/60")
    await made.take_tool("mcp", ANN, tool())
    await refusal(made)
    windows.used.clear()
    await anyio.sleep(0.06)
    await made.take_tool("mcp", ANN, tool())


async def test_limits_are_of_a_partition_an_endpoint_and_a_tool() -> None:
    windows = Windows()
    made = limits(windows, rate_tools="1/60", rate_anonymous="1/60")
    own = Rate(calls=1, seconds=10)
    for endpoint, principal in (("a", ANN), ("b", ANN), ("a", BOB), ("a", ANONYMOUS)):
        await made.take_tool(endpoint, principal, tool(own, name="x"))
    assert len(windows.used) == 8
    same = Principal(subject="eve", client="app")
    assert (await refusal_of(made, "a", same)).status == 429, "the partition is the client, so eve's is ann's"
    assert (await refusal_of(made, "a", ANONYMOUS)).status == 429, "callers without a name share theirs"


async def refusal_of(made: Limits, endpoint: str, principal: Principal) -> Rejection:
    with pytest.raises(Rejection) as raised:
        await made.take_tool(endpoint, principal, tool())
    return raised.value


async def test_many_who_wait_ask_once_for_all_of_them() -> None:
    windows = Windows()
    windows.go_on = anyio.Event()
    made = limits(windows, rate_tools="100/60")
    refused = 0

    async def call() -> None:
        nonlocal refused
        try:
            await made.take_tool("mcp", ANN, tool())
        except Rejection:
            refused += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(150):
            tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        windows.go_on.set()
    assert (refused, windows.used.total()) == (50, 100)
    assert len(windows.asked) <= 3


async def test_an_edge_takes_about_a_tenth_of_a_second_of_a_limit_that_is_used_fast() -> None:
    windows = Windows()
    made = limits(windows, rate_tools="100000/10")
    ends = time.monotonic() + 0.5
    calls = 0
    while time.monotonic() < ends:
        await made.take_tool("mcp", ANN, tool())
        calls += 1
        await anyio.lowlevel.checkpoint()
    assert max(asked.wanted for asked in windows.asked) <= 1000
    assert len(windows.asked) < calls / 2


async def test_a_limit_that_is_used_slowly_loses_nothing_to_lots_that_end() -> None:
    windows = Windows()
    made = limits(windows, rate_tools="1000/1")
    for _ in range(3):
        await made.take_tool("mcp", ANN, tool())
        await anyio.sleep(0.12)
    assert windows.used.total() <= 4


@pytest.mark.parametrize("choice", ["allow", "refuse"])
async def test_where_nobody_can_tell_a_setting_decides(choice: str) -> None:
    windows = Windows()
    windows.is_away = True
    made = limits(windows, rate_tools="1/60", rate_unknown=choice)
    for _ in range(5):
        if choice == "allow":
            await made.take_tool("mcp", ANN, tool())
        else:
            rejection = await refusal(made)
            assert (rejection.status, rejection.code) == (504, -32603)
    assert len(windows.asked) == 1, "it is not waited for at each call"


async def test_one_who_leaves_while_it_asks_leaves_the_asking_to_another() -> None:
    windows = Windows()
    windows.go_on = anyio.Event()
    made = limits(windows, rate_tools="100/60")
    impatience, done = anyio.CancelScope(), anyio.Event()

    async def leave() -> None:
        with impatience:
            await made.take_tool("mcp", ANN, tool())

    async def stay() -> None:
        await made.take_tool("mcp", ANN, tool())
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leave)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(stay)
        await anyio.wait_all_tasks_blocked()
        impatience.cancel()
        await anyio.wait_all_tasks_blocked()
        windows.go_on.set()
    assert done.is_set()


async def test_every_question_has_an_id_of_its_own_that_begins_with_the_edges() -> None:
    windows = Windows()
    made = limits(windows, rate_tools="1/60")
    for endpoint in ("a", "b"):
        await made.take_tool(endpoint, ANN, tool())
    ids = {asked.id for asked in windows.asked}
    assert len(ids) == 2
    assert all(each.startswith(EDGE) for each in ids)


@pytest.mark.parametrize("text", ["600", "600/", "/60", "0/60", "600/0", "-1/60", "a/b", "600/60/2", "many"])
def test_a_rate_is_written_as_calls_and_seconds(text: str) -> None:
    with pytest.raises(ValueError, match="600/60"):
        rate_of(text)
