"""The rights of sessions to hear of URIs: each ends by itself, and no change is told twice (X56 to X59)."""

from __future__ import annotations

import anyio
import pytest

from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.listener import changed
from tests.contract.fleet.sessions_app import BOOK, asking, guarded
from tests.contract.fleet.test_session_streams import listed
from tests.contract.fleet.test_stream_permission import revoke
from tests.contract.fleet.visitor import Visitors, Watching
from tests.kit.waiting import until

TOKENS = [{"token": "ann-1", "subject": "ann", "audience": "mcp"}]


@pytest.mark.rule("X59", "L13")
async def test_the_edge_of_a_stream_dies_with_a_change_and_twenty_streams_hear_of_it_once() -> None:
    async with LocalFleet(asking(), edges=3) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one(1)
        await visitor.ask("resources/subscribe", {"uri": BOOK}, 1)
        first = Watching()

        async def watched_to_its_death() -> None:
            try:
                await visitor.watch(first, 0)
            except Exception:  # its edge dies
                first.is_over = True

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watched_to_its_death)
            await until(lambda: first.status == 200)
            await fleet.edges[0].kill()
        await visitor.call("place_hold", {"book": 1}, 1)
        told: list[str] = []
        for number in range(20):
            async with visitor.watching(1 + number % 2) as watching:
                if number == 0:
                    await until(watching.uris)
                else:
                    await visitor.ask("ping", edge=1 + number % 2)
            told += watching.uris()
        assert told == [BOOK]


@pytest.mark.rule("X59")
async def test_a_change_without_a_stream_is_told_once_over_twenty_streams() -> None:
    async with LocalFleet(asking(), edges=2) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one()
        await visitor.ask("resources/subscribe", {"uri": BOOK})
        for _ in range(3):
            await visitor.call("place_hold", {"book": 1}, 1)
        told: list[str] = []
        for number in range(20):
            async with visitor.watching(number % 2) as watching:
                if number == 0:
                    await until(watching.uris)
            told += watching.uris()
        assert told == [BOOK]


@pytest.mark.rule("X59")
async def test_a_told_list_is_told_again_only_after_the_client_has_listed() -> None:
    app = asking()
    async with LocalFleet(app, edges=2) as fleet, Visitors(fleet) as visitors:
        visitor, other = await visitors.one(), await visitors.one()
        async with visitor.watching(0) as watching:
            app.tool("later")(lambda: "here")
            await until(lambda: watching.kinds() == [changed("tools")])
            app.tool("latest")(lambda: "here")
            await listed(other, "latest")
            await listed(other, "latest", 0)
        assert watching.kinds() == [changed("tools")]
        async with visitor.watching(1) as second:
            await visitor.ask("ping", edge=1)
            assert second.kinds() == []
            await listed(visitor, "latest", 0)
            app.remove("tool", "later")
            await until(lambda: second.kinds() == [changed("tools")])


@pytest.mark.rule("X57", "L12")
async def test_who_is_revoked_loses_the_session_though_it_has_no_stream() -> None:
    async with guarded(TOKENS, MCPFLEET_GRANT_LASTS="1") as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one(token="ann-1")
        assert (await visitor.ask("resources/subscribe", {"uri": BOOK}))["result"] == {}
        await revoke(fleet, "ann")
        await until(lambda: fleet.lines("session retired"))


@pytest.mark.rule("X57", "X56")
async def test_a_grant_that_nobody_renews_is_told_of_no_more_until_it_is() -> None:
    """Subscriptions is away: the lease ends at the edge by itself, and a change waits for its renewal."""
    quick = {"MCPFLEET_GRANT_LASTS": "1", "MCPFLEET_SESSION_CHECKED": "0.3"}
    async with guarded(TOKENS, **quick) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one(token="ann-1")
        assert (await visitor.ask("resources/subscribe", {"uri": BOOK}))["result"] == {}
        async with visitor.watching(0) as watching:
            await visitor.call("place_hold", {"book": 1})
            await until(lambda: watching.uris() == [BOOK])
            await fleet.subscriptions.kill()
            await anyio.sleep(1.2)  # a lease
            await visitor.call("place_hold", {"book": 1})
            await visitor.call("place_hold", {"book": 1})
            assert watching.uris() == [BOOK]
            await fleet.restart_subscriptions()
            await until(lambda: watching.uris() == [BOOK, BOOK])


@pytest.mark.rule("X57", "N9")
async def test_a_grant_is_fenced_while_authorization_does_not_answer() -> None:
    """It was asked three times, though half of the lease was left."""
    quick = {"MCPFLEET_GRANT_LASTS": "3", "MCPFLEET_SESSION_CHECKED": "0.3"}
    async with guarded(TOKENS, **quick) as fleet, Visitors(fleet) as visitors:
        visitor = await visitors.one(token="ann-1")
        assert (await visitor.ask("resources/subscribe", {"uri": BOOK}))["result"] == {}
        async with visitor.watching(0) as watching:
            await fleet.authorization.kill()
            await until(lambda: fleet.lines("grants fenced"))
            await anyio.sleep(0.5)  # the edge reads the session again
            await visitor.call("place_hold", {"book": 1})
            await visitor.call("place_hold", {"book": 1})
            assert watching.uris() == []
