"""Limits at an edge: tokens of authorization's windows, reserved before they are needed, many limits a question."""

# Longer than 400 lines: one class, over one bench of windows that tests move by hand.

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import structlog

from mcpfleet.authorization.windows import Window, grant
from mcpfleet.bus.errors import Unavailable
from mcpfleet.contracts.authorization import AuthorizationClient, TakeTokens, TokensGranted, TokensWanted
from mcpfleet.contracts.manifest import Definition, Rate
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.edge.identity import limits as limits_module
from mcpfleet.edge.identity.limits import Limits
from mcpfleet.edge.settings import EdgeSettings, rate_of
from mcpfleet.wire.errors import Rejection
from tests.kit.waiting import until

pytestmark = pytest.mark.usefixtures("jumping")

ANN = Principal(subject="ann", client="app")
BOB = Principal(subject="bob", client="app", tenant="acme")
EDGE = "e" * 16


def tool(rate: Rate | None = None, name: str = "search") -> Definition:
    return Definition(kind="tool", name=name, wire={"name": name, "inputSchema": {}}, rate=rate)


class Windows(AuthorizationClient):
    """Stands where the bus begins: a window for each key, by the rule of the service, which is told when it is over."""

    def __init__(self, rest: float = 60.0) -> None:
        self.asked: list[TakeTokens] = []
        self.windows: dict[str, Window] = {}
        self.number = 7
        self.rest = rest
        self.is_away = False
        self.go_on = anyio.Event()
        self.go_on.set()

    async def take_tokens(self, request: TakeTokens) -> list[TokensGranted | None]:
        self.asked.append(request)
        await self.go_on.wait()
        if self.is_away:
            raise Unavailable("authorization.limits_all")
        return [self.take_one(each) for each in request.limits]

    def take_one(self, wanted: TokensWanted) -> TokensGranted:
        window, granted = grant(self.windows.get(wanted.key, Window(-1, 0)), wanted, self.number)
        self.windows[wanted.key] = window
        left = wanted.limit - window.used
        return TokensGranted(granted=granted, rest=self.rest, window=window.number, left=left)

    @property
    def used(self) -> int:
        return sum(window.used for window in self.windows.values())

    @property
    def wanted(self) -> list[TokensWanted]:
        return [each for question in self.asked for each in question.limits]


@asynccontextmanager
async def limits(windows: Windows, **settings: Any) -> AsyncIterator[Limits]:
    """Limits that run; those that a test does not name are off."""
    off = {"rate_requests": "none", "rate_tools": "none", "rate_completions": "none", "rate_anonymous": "none"}
    made = Limits(windows, EdgeSettings(**{**off, **settings}), edge=EDGE, log=structlog.get_logger())
    async with anyio.create_task_group() as tasks:
        await tasks.start(made.run)
        yield made
        tasks.cancel_scope.cancel()


async def calls(made: Limits, count: int, principal: Principal = ANN) -> None:
    for _ in range(count):
        await made.take_tool("mcp", principal, tool())


async def refusal(
    made: Limits, principal: Principal = ANN, definition: Definition | None = None, endpoint: str = "mcp"
) -> Rejection:
    with pytest.raises(Rejection) as raised:
        await made.take_tool(endpoint, principal, definition or tool())
    return raised.value


def suspensions(run: Callable[[], Any]) -> int:
    """How often a coroutine gives the loop to others before it ends."""
    coroutine, count = run(), 0
    while True:
        try:
            coroutine.send(None)
        except StopIteration:
            return count
        count += 1


async def test_who_has_no_limit_asks_nobody() -> None:
    windows = Windows()
    async with limits(windows) as made:
        await made.take_request("mcp", ANN)
        await made.take_tool("mcp", ANN, tool())
        await made.take_completion("mcp", ANN)
        assert windows.asked == []


@pytest.mark.rule("M40")
async def test_tool_calls_and_completions_have_a_limit_by_default() -> None:
    windows, own = Windows(), EdgeSettings()
    async with limits(windows, rate_tools=own.rate_tools, rate_completions=own.rate_completions) as made:
        await made.take_tool("mcp", ANN, tool())
        await made.take_completion("mcp", ANN)
        assert [(each.limit, each.seconds) for each in windows.wanted] == [(6000, 60), (6000, 60)]
        assert len(windows.windows) == 2
        await made.take_tool("mcp", ANONYMOUS, tool())
        await made.take_completion("mcp", ANONYMOUS)
        await made.take_request("mcp", ANN)
        assert len(windows.asked) == 2


@pytest.mark.rule("D4")
async def test_beyond_the_limit_is_429_with_the_rest_of_the_window() -> None:
    windows = Windows(rest=41.5)
    async with limits(windows, rate_tools="3/60") as made:
        await calls(made, 3)
        rejection = await refusal(made)
        assert (rejection.status, rejection.code) == (429, -31999)
        assert rejection.headers["Retry-After"] == "42"
        assert rejection.data == {"retryAfter": 42}
        count = len(windows.asked)
        await refusal(made)
        assert len(windows.asked) == count, "a window that is full is not asked for again at once"


async def test_a_window_that_is_over_is_asked_for_again() -> None:
    windows = Windows(rest=0.05)
    async with limits(windows, rate_tools="1/60") as made:
        await calls(made, 1)
        await refusal(made)
        windows.number += 1
        await anyio.sleep(0.06)
        await calls(made, 1)


async def test_tokens_of_a_window_that_is_over_are_not_spent_in_the_next() -> None:
    windows = Windows(rest=0.05)
    async with limits(windows, rate_tools="6000/60") as made:
        await calls(made, 1)
        windows.number += 1
        await anyio.sleep(0.06)
        await calls(made, 1)
        [window] = windows.windows.values()
        assert (len(windows.asked), window.number, window.used) == (2, 8, 1 + 16)


async def test_limits_are_of_a_partition_an_endpoint_and_a_tool() -> None:
    windows = Windows()
    async with limits(windows, rate_tools="1/60", rate_anonymous="1/60") as made:
        own = Rate(calls=1, seconds=10)
        for endpoint, principal in (("a", ANN), ("b", ANN), ("a", BOB), ("a", ANONYMOUS)):
            await made.take_tool(endpoint, principal, tool(own, name="x"))
        assert len(windows.windows) == 8
        same = Principal(subject="eve", client="app")
        assert (await refusal(made, same, endpoint="a")).status == 429, "the partition is the client, so eve's is ann's"
        assert (await refusal(made, ANONYMOUS, endpoint="a")).status == 429, "callers without a name share theirs"


@pytest.mark.rule("M82")
async def test_as_many_calls_as_wait_are_asked_for_and_no_more_than_the_limit_pass() -> None:
    windows = Windows()
    windows.go_on = anyio.Event()
    refused = 0

    async def call() -> None:
        nonlocal refused
        try:
            await made.take_tool("mcp", ANN, tool())
        except Rejection:
            refused += 1

    async with limits(windows, rate_tools="100/60") as made, anyio.create_task_group() as tasks:
        for _ in range(150):
            tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        windows.go_on.set()
    assert (refused, windows.used) == (50, 100)
    assert len(windows.asked) <= 3


@pytest.mark.rule("M82")
async def test_limits_that_are_due_at_the_same_time_go_in_one_question() -> None:
    windows = Windows()
    windows.go_on = anyio.Event()
    async with limits(windows, rate_tools="6000/60") as made, anyio.create_task_group() as tasks:
        for number in range(130):
            tasks.start_soon(calls, made, 1, Principal(subject=f"s{number}"))
        await anyio.wait_all_tasks_blocked()
        windows.go_on.set()
    assert len(windows.wanted) == 130
    assert max(len(question.limits) for question in windows.asked) == 64
    assert len(windows.asked) <= 4
    assert len({question.id for question in windows.asked}) == len(windows.asked)
    assert all(question.id.startswith(EDGE) for question in windows.asked)
    assert sorted(question.id for question in windows.asked) == [question.id for question in windows.asked]


@pytest.mark.rule("M83")
async def test_a_call_whose_token_is_reserved_waits_for_nobody() -> None:
    windows = Windows()
    async with limits(windows, rate_tools="6000/60") as made:
        await calls(made, 1)
        windows.go_on = anyio.Event()
        assert [suspensions(lambda: made.take_tool("mcp", ANN, tool())) for _ in range(16)] == [0] * 16
        await until(lambda: len(windows.asked) == 2)
        assert windows.asked[1].limits[0].wanted == 0, "the next ones were reserved at half, and nobody waited"


@pytest.mark.rule("M83")
async def test_a_caller_in_steady_use_waits_once_a_window() -> None:
    windows = Windows()
    async with limits(windows, rate_tools="6000/60") as made:
        await calls(made, 1)
        waited = 0
        for _ in range(300):
            waited += suspensions(lambda: made.take_tool("mcp", ANN, tool())) > 0
            await anyio.sleep(0.001)
        assert waited == 0
        assert len(windows.asked) < 30


@pytest.mark.rule("M83")
async def test_a_failed_reservation_is_tried_again_before_any_call_waits() -> None:
    windows = Windows()
    async with limits(windows, rate_tools="6000/60") as made:
        await calls(made, 1)
        windows.is_away = True
        await calls(made, 8)
        await until(lambda: len(windows.asked) == 2)
        await anyio.wait_all_tasks_blocked()
        windows.is_away = False
        await calls(made, 4)
        await until(lambda: len(windows.asked) == 3)
        await anyio.wait_all_tasks_blocked()
        assert [suspensions(lambda: made.take_tool("mcp", ANN, tool())) for _ in range(8)] == [0] * 8


@pytest.mark.rule("M83")
async def test_the_share_of_what_is_left_keeps_small_limits_exact() -> None:
    """Three edges with 20 calls each at the same time, a limit of 12: what each waits for, and nothing ahead."""
    windows = Windows()
    passed = 0

    async def call(made: Limits) -> None:
        nonlocal passed
        try:
            await made.take_tool("mcp", ANN, tool())
        except Rejection:
            return
        passed += 1

    own = {"rate_tools": "12/60"}
    async with (
        limits(windows, **own) as one,
        limits(windows, **own) as two,
        limits(windows, **own) as three,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(20):
            for made in (one, two, three):
                tasks.start_soon(call, made)
    assert (passed, windows.used) == (12, 12)


@pytest.mark.rule("M83")
async def test_an_edge_holds_no_more_ahead_than_it_has_used() -> None:
    windows = Windows()
    async with limits(windows, rate_tools="100000/60") as made:
        for used in range(1, 400):
            await calls(made, 1)
            await anyio.lowlevel.checkpoint()
            assert windows.used - used <= max(used, 16)


@pytest.mark.rule("M84")
async def test_what_is_not_used_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "_CHECKS_EVERY", 0.05)
    windows = Windows()
    async with limits(windows, rate_tools="100000/60") as made:
        await calls(made, 300)
        assert windows.used > 300 + 16
        await until(lambda: windows.used <= 300 + 16)
        await calls(made, 20)
        assert windows.used >= 320


@pytest.mark.rule("M84")
async def test_nothing_is_taken_for_a_limit_whose_window_ended_before_it_gave_back() -> None:
    windows = Windows()
    async with limits(windows, rate_tools="100000/60") as made:
        await calls(made, 300)
        await until(lambda: windows.used > 316)
        windows.number += 1
        batch = made._batches[next(iter(made._batches))]
        batch.until = 0.0
        await made.give_back()
        assert [window.number for window in windows.windows.values()] == [7]


@pytest.mark.rule("M84")
async def test_an_edge_that_leaves_gives_back_what_it_holds() -> None:
    windows = Windows()
    async with limits(windows, rate_tools="100000/60") as made:
        for principal in (ANN, BOB):
            await calls(made, 300, principal)
        await until(lambda: windows.used > 632)
        await made.give_back()
        assert windows.used == 600


@pytest.mark.rule("M84")
async def test_a_window_that_was_full_is_used_again_once_tokens_came_back() -> None:
    windows = Windows()
    async with limits(windows, rate_tools="3/60") as made:
        await calls(made, 3)
        await refusal(made)
        [key] = windows.windows
        windows.windows[key] = Window(7, 2)
        with anyio.fail_after(5):
            while True:
                try:
                    await calls(made, 1)
                    break
                except Rejection:
                    await anyio.sleep(0.05)
        assert (windows.used, (await refusal(made)).status) == (3, 429)


@pytest.mark.rule("M84")
async def test_a_limit_that_is_forgotten_for_others_gives_its_tokens_back() -> None:
    windows = Windows()
    async with limits(windows, rate_tools="6000/60", rate_entries=2) as made:
        for name in "abcd":
            await calls(made, 1, Principal(subject=name))
        await until(lambda: windows.used == 2 * 1 + 2 * 17)
        await calls(made, 1, Principal(subject="a"))
        await until(lambda: windows.used == 1 + 2 * 1 + 2 * 17)


@pytest.mark.parametrize("choice", ["allow", "refuse"])
async def test_where_nobody_can_tell_a_setting_decides(choice: str) -> None:
    windows = Windows()
    windows.is_away = True
    async with limits(windows, rate_tools="1/60", rate_unknown=choice) as made:
        for _ in range(5):
            if choice == "allow":
                await calls(made, 1)
            else:
                rejection = await refusal(made)
                assert (rejection.status, rejection.code) == (504, -32603)
        assert len(windows.asked) == 1, "it is not waited for at each call"


async def test_nobody_waits_longer_than_the_setting_however_many_are_before() -> None:
    windows = Windows()
    windows.go_on = anyio.Event()
    async with limits(windows, rate_tools="6000/60", rate_wait=0.2) as made:
        with anyio.fail_after(10):  # nothing is answered before the end
            async with anyio.create_task_group() as tasks:
                for number in range(500):
                    tasks.start_soon(calls, made, 2, Principal(subject=f"s{number}"))
        windows.go_on.set()


async def test_one_who_leaves_while_it_waits_leaves_its_token_to_another() -> None:
    windows = Windows()
    windows.go_on = anyio.Event()
    impatience, done = anyio.CancelScope(), anyio.Event()
    async with limits(windows, rate_tools="2/60") as made:

        async def leave() -> None:
            with impatience:
                await calls(made, 1)

        async def stay() -> None:
            await calls(made, 1)
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
        await calls(made, 1)
        assert (await refusal(made)).status == 429


@pytest.mark.parametrize("text", ["600", "600/", "/60", "0/60", "600/0", "-1/60", "a/b", "600/60/2", "many"])
def test_a_rate_is_written_as_calls_and_seconds(text: str) -> None:
    with pytest.raises(ValueError, match="600/60"):
        rate_of(text)
