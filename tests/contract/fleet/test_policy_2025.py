"""The operator's policy and clients of 2025: what a GET stream hears, and who keeps a right to a URI (X57, X58)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from mcpfleet.authorization.policy import Allow, Filter
from tests.contract.fleet.accounts_app import ANN, BOB
from tests.contract.fleet.listener import changed
from tests.contract.fleet.policy_app import fleet, policy
from tests.contract.fleet.sessions_app import BOOK, asking
from tests.contract.fleet.test_policy import revoke_policy
from tests.contract.fleet.test_session_streams import listed
from tests.contract.fleet.visitor import Visitors, Watching
from tests.kit.waiting import pause, until


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    policy._reset()
    yield
    policy._reset()


async def _raise(*_: Any) -> Any:
    raise OSError("the table of ann is away")


@pytest.mark.rule("X58", "L9")
async def test_a_get_hears_the_families_that_the_policy_allows_and_leaves_the_others_to_a_later_one() -> None:
    policy._stream = lambda _, families: Allow(families & {"tools"}, 60)
    app = asking()
    async with fleet(app, edges=2) as running, Visitors(running) as visitors:
        visitor = await visitors.one(token=ANN)
        await visitor.ask("resources/subscribe", {"uri": BOOK})
        async with visitor.watching(0) as watching:
            assert policy._judged[-1] == ("ann", "stream", frozenset({"tools", "resources", "updates"}))
            await visitor.call("place_hold", {"book": 1}, 1)
            app.tool("later")(lambda: "here")
            app.resource("library://shelf")(lambda: "here")
            await until(lambda: watching.kinds() == [changed("tools")])
            await listed(visitor, "later", 1)
        assert watching.uris() == []
        policy._stream = lambda _, families: Allow(families & {"updates"}, 60)
        async with visitor.watching(1) as second:
            await until(lambda: second.uris() == [BOOK])
        policy._stream = lambda _, families: Allow(families, 60)
        async with visitor.watching(0) as third:
            await until(lambda: changed("resources") in third.kinds())
            assert third.uris() == [], "told once"


@pytest.mark.rule("X58")
async def test_whom_the_policy_allows_no_stream_gets_405_and_keeps_the_session() -> None:
    policy._stream = lambda caller, families: Allow(families, 60) if caller.subject == "bob" else None
    async with fleet(asking()) as running, Visitors(running) as visitors:
        anns, bobs = await visitors.one(token=ANN), await visitors.one(token=BOB)
        refused = Watching()
        await anns.watch(refused)
        assert (refused.status, refused.messages) == (405, [])
        assert (await anns.ask("ping"))["result"] == {}
        async with bobs.watching():
            pass
        policy._stream = _raise
        unanswered = Watching()
        await bobs.watch(unanswered)
        assert unanswered.status == 504


@pytest.mark.rule("X58")
async def test_a_renewal_narrows_a_get_and_its_denial_ends_the_session() -> None:
    policy._stream = lambda _, families: Allow(families, 0.6)
    async with (
        fleet(asking(), {"MCPFLEET_PERMISSION_LASTS": "5"}) as running,
        Visitors(running) as visitors,
    ):
        visitor = await visitors.one(token=ANN)
        await visitor.ask("resources/subscribe", {"uri": BOOK})
        async with visitor.watching() as watching:
            await visitor.call("place_hold", {"book": 1})
            await until(lambda: watching.uris() == [BOOK])
            policy._stream = lambda _, families: Allow(families - {"updates"}, 0.6)
            judged = len(policy._judged)
            await until(lambda: len(policy._judged) >= judged + 2)
            await visitor.call("place_hold", {"book": 1})
            await visitor.ask("ping")
            assert watching.uris() == [BOOK]
            policy._stream = lambda *_: None
            await until(lambda: watching.is_over)
        with anyio.fail_after(10):
            while await visitor.ask("ping") != 404:
                await pause()


@pytest.mark.rule("X57", "L12")
async def test_the_policys_listen_decides_on_a_subscribe_and_renews_the_right_without_a_stream() -> None:
    policy._listen = lambda caller, wanted: Allow(wanted, 60) if caller.subject == "bob" else None
    async with (
        fleet(asking(), {"MCPFLEET_GRANT_LASTS": "1"}) as running,
        Visitors(running) as visitors,
    ):
        anns, bobs = await visitors.one(token=ANN), await visitors.one(token=BOB)
        denied = await anns.ask("resources/subscribe", {"uri": BOOK})
        missing = await anns.ask("resources/subscribe", {"uri": "library://nothing"})
        assert denied["error"]["code"] == missing["error"]["code"]
        assert denied["error"]["message"] == missing["error"]["message"], "in the same words"
        assert (await bobs.ask("resources/subscribe", {"uri": BOOK}))["result"] == {}
        judged = len(policy._judged)
        await until(lambda: len(policy._judged) >= judged + 2, within=10)
        subject, judging, wanted = policy._judged[-1]
        assert (subject, judging, wanted) == ("bob", "listen", Filter(uris=(BOOK,)))
        assert not running.lines("session retired")
        policy._listen = lambda *_: None
        await until(lambda: running.lines("session retired"), within=10)
        assert await bobs.ask("ping") == 404
        assert (await anns.ask("ping"))["result"] == {}


@pytest.mark.rule("X57")
async def test_a_right_is_fenced_while_the_policy_gives_no_answer_and_goes_on_after_it() -> None:
    quick = {"MCPFLEET_GRANT_LASTS": "2", "MCPFLEET_SESSION_CHECKED": "0.3"}
    async with fleet(asking(), quick) as running, Visitors(running) as visitors:
        visitor = await visitors.one(token=ANN)
        assert (await visitor.ask("resources/subscribe", {"uri": BOOK}))["result"] == {}
        async with visitor.watching(0) as watching:
            policy._listen = _raise
            await until(lambda: running.lines("grants fenced"), within=10)
            await visitor.call("place_hold", {"book": 1})
            await visitor.ask("ping")
            assert watching.uris() == []
            assert not running.lines("session retired")
            policy._listen = lambda _, wanted: Allow(wanted, 60)
            await until(lambda: watching.uris() == [BOOK], within=10)


@pytest.mark.rule("X52", "X57")
async def test_after_a_changed_policy_a_session_hears_of_a_uri_once_listen_has_allowed_it_again() -> None:
    """The rights last a minute: it is the change of policy that has them decided anew."""
    gate = anyio.Event()

    async def wait(caller: Any, wanted: Any) -> Any:
        await gate.wait()
        return Allow(wanted, 60) if caller.subject == "bob" else None

    async with fleet(asking(), edges=2) as running, Visitors(running) as visitors:
        anns, bobs = await visitors.one(token=ANN), await visitors.one(token=BOB)
        for visitor in (anns, bobs):
            assert (await visitor.ask("resources/subscribe", {"uri": BOOK}))["result"] == {}
        async with anns.watching(0) as hers, bobs.watching(1) as his:
            policy._listen = wait
            await revoke_policy(running)
            await until(lambda: policy._judged[-1][1] == "listen")
            await bobs.call("place_hold", {"book": 1})
            await bobs.ask("ping", edge=1)
            assert (hers.uris(), his.uris()) == ([], []), "nothing passes before the answer"
            gate.set()
            await until(lambda: his.uris() == [BOOK])
            await until(lambda: hers.is_over)
            assert hers.uris() == []
        with anyio.fail_after(10):
            while await anns.ask("ping") != 404:
                await pause()


@pytest.mark.rule("X57", "X51")
async def test_subscriptions_dies_amid_renewals_and_no_right_outlives_its_lease() -> None:
    """The answers never come to the store; edges end the leases themselves, and go on once they are renewed."""
    quick = {"MCPFLEET_GRANT_LASTS": "2", "MCPFLEET_SESSION_CHECKED": "0.3"}
    gate, app = anyio.Event(), asking()

    async def wait(caller: Any, wanted: Any) -> Any:
        await gate.wait()
        return Allow(wanted, 60)

    async with (
        fleet(app, quick, edges=2) as running,
        Visitors(running) as visitors,
        AsyncExitStack() as stack,
    ):
        watched = []
        for number in range(6):
            visitor = await visitors.one(number % 2, token=(ANN, BOB)[number % 2])
            assert (await visitor.ask("resources/subscribe", {"uri": BOOK}))["result"] == {}
            watched.append(await stack.enter_async_context(visitor.watching(number % 2)))
        judged = len(policy._judged)
        policy._listen = wait
        await until(lambda: len(policy._judged) > judged)
        await running.subscriptions.kill()
        await anyio.sleep(2.2)  # a lease
        app.publish(BOOK)
        await anyio.sleep(0.2)
        assert not any(each.uris() for each in watched)
        gate.set()
        await running.restart_subscriptions()
        await until(lambda: all(each.uris() == [BOOK] for each in watched))
