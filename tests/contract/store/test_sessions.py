"""Sessions of clients of the revisions of 2025, on both databases: at every edge, and for their owners alone (D11)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from sqlalchemy import func, select, update

from mcpfleet.contracts.sessions import BeginSession, ChangeSession, Session, session_key
from mcpfleet.store.engine import Store, open_store
from mcpfleet.store.settings import Bounds
from mcpfleet.subscriptions.sessions import AT_ONCE, SessionRepository, SessionUpdate
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.subscriptions.tables import session_uris, sessions
from tests.contract.store.statements import statements

ANN, BOB = "a" * 32, "b" * 32
FIRST, SECOND, THIRD = (digit * 32 for digit in "123")
SETTINGS = {"session_idle": 100.0, "session_lasts": 1000.0, "owner_sessions": 4, "session_uris": 3}


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url, service="test", embedded=True, bounds=Bounds()) as opened:
        yield opened


class SessionHarness(SessionRepository):
    """The sessions, said shortly."""

    def __init__(self, store: Store, **settings: Any) -> None:
        super().__init__(store, SubscriptionsSettings(**{**SETTINGS, **settings}))
        self.store = store

    async def begun(self, name: str, owner: str = ANN, **fields: Any) -> list[str]:
        _, ended = await self.begin(_begin(name, owner, **fields))
        return ended

    async def changed(self, name: str, owner: str = ANN, **fields: Any) -> SessionUpdate:
        return await self.change(ChangeSession(session=session_key(name), owner=owner, **fields))

    async def found(self, name: str, owner: str = ANN) -> Session:
        session = await self.read(session_key(name), owner)
        assert session is not None
        return session

    async def has(self, name: str, owner: str = ANN) -> bool:
        return await self.read(session_key(name), owner) is not None

    async def ended(self, name: str, owner: str = ANN) -> bool:
        return await self.end(session_key(name), owner)

    async def age(self, name: str, column: str, seconds: float) -> None:
        """Let it be so long since a moment of a session."""
        kept = sessions.c[column]
        async with self.store.write() as connection:
            mine = update(sessions).where(sessions.c.session == session_key(name))
            await connection.execute(mine.values({kept: kept - seconds}))

    async def rows(self) -> tuple[int, int]:
        """How many sessions and URIs are kept."""
        async with self.store.read() as connection:
            found = [
                await connection.scalar(select(func.count()).select_from(each)) for each in (sessions, session_uris)
            ]
        return found[0] or 0, found[1] or 0


def _begin(name: str, owner: str = ANN, **fields: Any) -> BeginSession:
    return BeginSession(session=session_key(name), owner=owner, **{"revision": "2025-11-25", **fields})


@pytest.mark.rule("D11")
async def test_a_session_is_what_its_client_said_at_every_replica(url: str, store: Store) -> None:
    client = {"name": "c", "version": "1", "title": "\x00é", "icons": [None]}
    await SessionHarness(store).begun("s", client=client, capabilities={"sampling": {}})
    async with open_store(url, service="test", embedded=True, bounds=Bounds()) as other:
        assert await SessionHarness(other).found("s") == Session(
            revision="2025-11-25", client=client, capabilities={"sampling": {}}
        )


@pytest.mark.rule("L18")
async def test_a_session_is_its_owners_alone(store: Store) -> None:
    """The answer is the same for another caller's session and for one that never was."""
    harness = SessionHarness(store)
    await harness.begun("s")
    assert not await harness.has("s", BOB)
    assert await harness.changed("s", BOB, log_level="info") == SessionUpdate(None) == await harness.changed("other")
    assert not await harness.ended("s", BOB)
    assert not await harness.ended("other")
    assert await harness.found("s") == Session(revision="2025-11-25")


async def test_beginning_again_changes_nothing(store: Store) -> None:
    harness = SessionHarness(store)
    await harness.begun("s")
    await harness.changed("s", log_level="info", subscribe="a:1")
    known = await harness.found("s")
    assert await harness.begun("s") == []
    assert await harness.found("s") == known


@pytest.mark.rule("M80")
async def test_the_log_level_is_the_sessions(store: Store) -> None:
    harness = SessionHarness(store)
    await harness.begun("s")
    first = await harness.changed("s", log_level="info")
    assert first.is_other
    assert first.session == await harness.found("s") == Session(revision="2025-11-25", log_level="info")
    assert await harness.changed("s", log_level="info") == first._replace(is_other=False), "a repeat changes nothing"
    assert (await harness.changed("s", log_level="error")).is_other


@pytest.mark.rule("L11")
async def test_a_session_subscribes_and_unsubscribes(store: Store) -> None:
    harness = SessionHarness(store)
    await harness.begun("s")
    await harness.begun("other")
    for _ in range(2):
        await harness.changed("s", subscribe="a:1")
    await harness.changed("s", subscribe="a:\x00é")
    assert set((await harness.found("s")).uris) == {"a:1", "a:\x00é"}
    assert (await harness.found("other")).uris == ()
    assert [(await harness.changed("s", unsubscribe="a:1")).is_other for _ in range(2)] == [True, False]
    assert (await harness.found("s")).uris == ("a:\x00é",)


@pytest.mark.rule("L11")
async def test_a_session_that_is_full_changes_nothing(store: Store) -> None:
    harness = SessionHarness(store)
    await harness.begun("s")
    for number in range(3):
        assert not (await harness.changed("s", subscribe=f"a:{number}")).is_full
    full = await harness.changed("s", subscribe="a:4", log_level="info")
    assert full == SessionUpdate(await harness.found("s"), is_full=True)
    assert len((await harness.found("s")).uris) == 3
    assert (await harness.found("s")).log_level is None
    assert not (await harness.changed("s", subscribe="a:2")).is_full, "it has that one"
    await harness.changed("s", unsubscribe="a:2")
    assert not (await harness.changed("s", subscribe="a:4")).is_full


@pytest.mark.rule("N10")
async def test_of_three_streams_the_oldest_is_none_of_the_sessions(store: Store) -> None:
    harness = SessionHarness(store)
    await harness.begun("s")
    for stream, streams in [(FIRST, (FIRST,)), (SECOND, (SECOND, FIRST)), (THIRD, (THIRD, SECOND))]:
        done = await harness.changed("s", opened=stream)
        assert done.is_other
        assert done.session == await harness.found("s")
        assert (await harness.found("s")).streams == streams
        assert not (await harness.changed("s", opened=stream)).is_other
    assert not (await harness.changed("s", closed=FIRST)).is_other


@pytest.mark.rule("L13")
async def test_the_stream_before_is_the_newest_again_once_the_newest_has_closed(store: Store) -> None:
    harness = SessionHarness(store)
    await harness.begun("s")
    await harness.changed("s", opened=FIRST)
    await harness.changed("s", opened=SECOND)
    await harness.changed("s", closed=SECOND)
    assert (await harness.found("s")).streams == (FIRST,)
    assert not (await harness.changed("s", closed=SECOND)).is_other, "a repeat changes nothing"
    await harness.changed("s", closed=FIRST)
    assert (await harness.found("s")).streams == ()


@pytest.mark.rule("L13")
async def test_what_a_client_may_know_of_lists_is_kept_over_gaps(store: Store) -> None:
    harness = SessionHarness(store)
    await harness.begun("s")
    await harness.changed("s", opened=FIRST)
    assert (await harness.found("s")).lists is None
    await harness.changed("s", closed=FIRST, lists={})
    assert (await harness.found("s")).lists == {}
    await harness.changed("s", lists={"tools": "0"})
    await harness.changed("s", opened=SECOND)
    assert (await harness.found("s")).lists == {"tools": "0"}


@pytest.mark.rule("L8")
async def test_a_session_that_was_ended_is_not_there_and_leaves_nothing(store: Store) -> None:
    harness = SessionHarness(store)
    await harness.begun("s")
    await harness.begun("other")
    await harness.changed("s", subscribe="a:1")
    await harness.changed("other", subscribe="a:1")
    assert [await harness.ended("s") for _ in range(2)] == [True, False]
    assert not await harness.has("s")
    assert await harness.changed("s", subscribe="a:1") == SessionUpdate(None)
    assert await harness.rows() == (1, 1)


@pytest.mark.rule("L8")
@pytest.mark.parametrize(("column", "seconds"), [("touched_at", 100), ("begun_at", 1000)])
async def test_a_session_is_over_that_is_idle_or_old(store: Store, column: str, seconds: float) -> None:
    harness = SessionHarness(store)
    await harness.begun("s")
    await harness.begun("other")
    await harness.age("s", column, seconds - 5)
    assert await harness.has("s")
    await harness.age("s", column, seconds + 1)  # reading it may have noted that it is used
    assert not await harness.has("s")
    assert await harness.changed("s", log_level="info") == SessionUpdate(None)
    assert not await harness.ended("s"), "before anybody has swept"
    assert await harness.sweep() == [session_key("s")]
    assert await harness.rows() == (1, 0)


@pytest.mark.parametrize("use", ["read", "change"])
async def test_a_session_that_is_used_lives_on(store: Store, use: str) -> None:
    harness = SessionHarness(store)
    await harness.begun("s")
    for _ in range(3):
        await harness.age("s", "touched_at", 60)
        assert await harness.has("s") if use == "read" else await harness.changed("s")
    assert await harness.sweep() == []


async def test_a_session_that_was_used_a_moment_ago_is_only_read(store: Store) -> None:
    """Requests of a session follow one another: each costs one statement, until a tenth of the idle time is over."""
    harness = SessionHarness(store)
    await harness.begun("s")
    await harness.age("s", "touched_at", 9)
    with statements() as ran:
        await harness.found("s")
    assert ran == ["SELECT"]
    await harness.age("s", "touched_at", 2)
    with statements() as ran:
        await harness.found("s")
    assert ran == ["SELECT", "UPDATE"]
    with statements() as ran:
        await harness.found("s")
        await harness.changed("s")
    assert "UPDATE" not in ran


async def test_an_owner_with_too_many_sessions_loses_those_that_were_used_longest_ago(store: Store) -> None:
    harness = SessionHarness(store)
    for number in range(4):
        assert await harness.begun(f"s{number}") == []
        await harness.changed(f"s{number}", subscribe="a:1")
    await harness.begun("of another", BOB)
    await harness.age("s2", "touched_at", 9)
    assert await harness.begun("s4") == [session_key("s2")]
    assert await harness.begun("s4") == []
    assert not await harness.has("s2")
    assert await harness.rows() == (5, 3)
    assert set(await SessionHarness(store, owner_sessions=1).begun("s5")) == {
        session_key(f"s{number}") for number in (0, 1, 3, 4)
    }
    assert await harness.has("s5")
    assert await harness.has("of another", BOB)


async def test_sessions_that_begin_at_once_at_two_replicas_keep_the_bound(url: str, store: Store) -> None:
    """The bound may be passed by what begins at the same moment, until the next begins."""
    async with AsyncExitStack() as opened:
        stores = [
            await opened.enter_async_context(open_store(url, service="test", embedded=True, bounds=Bounds()))
            for _ in range(2)
        ]
        ended: list[str] = []

        async def begin(number: int) -> None:
            ended.extend(await SessionHarness(stores[number % 2]).begun(f"s{number}"))

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(begin, number)
    harness = SessionHarness(store)
    ended.extend(await harness.begun("last"))
    assert await harness.rows() == (4, 0)
    assert len(set(ended)) == len(ended) == 17, "each was ended once"
    assert await harness.has("last")


async def test_changes_at_two_replicas_at_once_are_all_done(url: str, store: Store) -> None:
    async with AsyncExitStack() as opened:
        stores = [
            await opened.enter_async_context(open_store(url, service="test", embedded=True, bounds=Bounds()))
            for _ in range(2)
        ]
        await SessionHarness(store).begun("s")
        full: list[bool] = []

        async def subscribe(number: int) -> None:
            full.append((await SessionHarness(stores[number % 2]).changed("s", subscribe=f"a:{number}")).is_full)

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(subscribe, number)
            tasks.start_soon(lambda: SessionHarness(stores[0]).changed("s", opened=FIRST))
            tasks.start_soon(lambda: SessionHarness(stores[1]).changed("s", opened=SECOND))
    assert sorted(full) == [False] * 3 + [True] * 5
    session = await SessionHarness(store).found("s")
    assert len(session.uris) == 3
    assert set(session.streams) == {FIRST, SECOND}


async def test_what_is_over_is_swept_by_replicas_together_a_part_at_a_time(url: str, store: Store) -> None:
    harness = SessionHarness(store, owner_sessions=10_000)
    kept = {"revision": "1", "client": "{}", "capabilities": "{}", "touched_at": 0.0, "begun_at": 0.0, "owner": ANN}
    over = [session_key(f"s{number}") for number in range(AT_ONCE + 5)]
    async with store.write() as connection:
        await connection.execute(sessions.insert(), [{**kept, "session": each} for each in over])
        uris = [{"session": each, "uri_key": ANN, "uri": '"a:1"'} for each in over[:10]]
        await connection.execute(session_uris.insert(), uris)
    await harness.begun("s")
    swept: list[list[str]] = []

    async def sweep(where: Store) -> None:
        swept.append(await SessionHarness(where).sweep())

    async with open_store(url, service="test", embedded=True, bounds=Bounds()) as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sweep, store)
            tasks.start_soon(sweep, other)
        swept.append(await harness.sweep())
    assert max(map(len, swept)) == AT_ONCE
    assert sorted(each for ended in swept for each in ended) == sorted(over)
    assert await harness.rows() == (1, 0)
