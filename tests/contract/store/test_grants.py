"""Grants of sessions on both databases: their leases, their renewals, and changes that were not told (X56 to X59)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from mcpfleet.bus.errors import Unanswered
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.grants import RENEW, GrantsRenewed, Holder, NewGrant, Renewal, RenewGrants, UriGrant
from mcpfleet.contracts.hints import OPERATOR_TOKEN, resource_key
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.sessions import BeginSession, ChangeSession, Session, session_key
from mcpfleet.store.engine import Store, open_store
from mcpfleet.store.settings import Bounds
from mcpfleet.subscriptions.grants import DueGrant, GrantRepository, Heard, HeardAt
from mcpfleet.subscriptions.renewals import GrantRenewals
from mcpfleet.subscriptions.sessions import SessionRepository, SessionUpdate
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.subscriptions.tables import session_uris

ANN = "a" * 32
KEY = session_key("s")
URI, OTHER = "a:1", "a:2"
EDGE = "e" * 16
FIRST, SECOND = EDGE + "1" * 16, "f" * 16 + "2" * 16


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url, service="test", embedded=True, bounds=Bounds()) as opened:
        yield opened


def grant(number: int = 1, credential: float | None = None) -> NewGrant:
    principal = Principal(subject="ann", scopes=("read",))
    holder = Holder(endpoint="mcp", principal=principal, number=number, credential_lasts=credential)
    return NewGrant(holder=holder, pool="shop")


class Grants(GrantRepository):
    """The grants of one session, said shortly."""

    def __init__(self, store: Store, **settings: Any) -> None:
        chosen = SubscriptionsSettings(**{"grant_lasts": 60.0, "grant_total": 1000.0, **settings})
        super().__init__(store, chosen)
        self.store = store
        self.sessions = SessionRepository(store, chosen)

    async def begun(self, *uris: str) -> None:
        await self.sessions.begin(BeginSession(session=KEY, owner=ANN, revision="2025-11-25"))
        for uri in uris:
            await self.changed(subscribe=uri, grant=grant())

    async def changed(self, **fields: Any) -> SessionUpdate:
        return await self.sessions.change(ChangeSession(session=KEY, owner=ANN, **fields))

    async def session(self) -> Session | None:
        return await self.sessions.read(KEY, ANN)

    async def now(self, uri: str = URI) -> UriGrant:
        session = await self.session()
        assert session is not None
        [found] = [each for each in session.grants if each.uri == uri]
        return found

    async def later(self, seconds: float) -> None:
        """Let time pass for all grants."""
        names = ("lease_until", "total_until", "credential_until", "asked_at")
        columns = [session_uris.c[name] for name in names]
        async with self.store.write() as connection:
            await connection.execute(update(session_uris).values({each: each - seconds for each in columns}))

    async def one_due(self) -> DueGrant:
        [found] = await self.due()
        return found

    async def heard(self, uri: str = URI, pool: str = "shop", ago: float = 0.0) -> list[str]:
        moment = time.monotonic() - ago
        return await self.note({Heard("mcp", pool, resource_key(uri)): HeardAt(moment, moment)})


@pytest.mark.rule("X56", "X57")
async def test_a_grant_has_a_life_of_its_own_and_a_second_subscribe_decides_it_anew(store: Store) -> None:
    grants = Grants(store)
    await grants.begun(URI, OTHER)
    first = await grants.now()
    assert first.dirty == 0
    assert first.lasts == pytest.approx(60, abs=5)
    await grants.later(50)
    await grants.changed(subscribe=URI, grant=grant())
    again = await grants.now()
    assert again.generation == first.generation + 1
    assert again.lasts == pytest.approx(60, abs=5)
    assert (await grants.now(OTHER)).lasts == pytest.approx(10, abs=5)
    await grants.later(945)  # its total time goes on from the first subscribe
    assert {each.uri: each.is_over for each in await grants.due()} == {URI: False, OTHER: False}
    await grants.later(10)
    assert {each.uri: each.is_over for each in await grants.due()} == {URI: True, OTHER: True}


@pytest.mark.rule("X56")
@pytest.mark.parametrize("how", ["unsubscribe", "subscribe", "both"])
async def test_a_late_answer_restores_nothing(store: Store, how: str) -> None:
    grants = Grants(store)
    await grants.begun(URI)
    await grants.later(40)
    asked = await grants.one_due()
    if how != "subscribe":
        await grants.changed(unsubscribe=URI)
    if how != "unsubscribe":
        await grants.changed(subscribe=URI, grant=grant(credential=5.0))
    assert not await grants.extend(asked, 60)
    assert not await grants.fence(asked)
    assert not await grants.retire(asked)
    session = await grants.session()
    assert session is not None
    assert len(session.grants) == (how != "unsubscribe")
    assert all(each.lasts is not None and each.lasts < 6 for each in session.grants)


@pytest.mark.rule("X56")
async def test_what_an_edge_of_the_former_release_subscribed_to_has_no_lease(store: Store) -> None:
    grants = Grants(store)
    await grants.begun()
    await grants.changed(subscribe=URI)
    assert await grants.now() == UriGrant(uri=URI)
    await grants.later(1e6)
    assert await grants.due() == []
    await grants.changed(subscribe=URI, grant=grant())
    assert (await grants.now()).generation > 0


@pytest.mark.rule("X57")
async def test_a_lease_ends_with_its_credential_which_a_later_request_moves(store: Store) -> None:
    grants = Grants(store)
    await grants.begun()
    await grants.changed(subscribe=URI, grant=grant(credential=20.0))
    assert (await grants.now()).lasts == pytest.approx(20, abs=3)
    await grants.saw(KEY, grant(number=1, credential=500.0).holder)
    assert await grants.extend(await grants.one_due(), 1000.0)
    assert (await grants.now()).lasts == pytest.approx(60, abs=3)
    await grants.later(470)
    assert not (await grants.one_due()).is_over
    await grants.later(31)
    assert not (await grants.one_due()).is_over, "its client may come back with a newer credential"
    await grants.later(60)
    assert (await grants.one_due()).is_over


@pytest.mark.rule("X57")
async def test_two_replicas_renew_a_grant_once(store: Store) -> None:
    grants = Grants(store)
    await grants.begun(URI)
    assert await grants.due() == []
    await grants.later(31)
    assert (await grants.one_due()).holder.principal == Principal(subject="ann", scopes=("read",))
    assert await grants.due() == []


@pytest.mark.rule("X57")
async def test_a_denied_grant_retires_its_session(store: Store) -> None:
    grants = Grants(store)
    await grants.begun(URI, OTHER)
    await grants.later(31)
    denied = (await grants.due())[0]
    assert await grants.retire(denied)
    assert await grants.session() is None
    assert not await grants.retire(denied)


class Authorization:
    """Answers renewals by what a test says, in order: allowed, denied, undecided or silent. It hints nothing."""

    def __init__(self, *answers: Renewal | None) -> None:
        self.left = list(answers)
        self.told: list[str] = []

    async def request(self, subject: str, body: bytes, *, timeout: float, repeat: bool) -> Incoming:
        assert (subject, repeat, timeout > 0) == (RENEW.subject, True, True)
        answer = self.left.pop(0)
        if answer is None:
            raise Unanswered(subject)
        renewed = GrantsRenewed(renewals=(answer,) * len(RenewGrants.model_validate_json(body).holders))
        return Incoming(subject, "", renewed.model_dump_json().encode())

    def all_changed(self, sessions: Iterable[str]) -> None:
        self.told += sessions

    def changed(self, session: str) -> None:
        self.told.append(session)

    def ended(self, sessions: Iterable[str], why: str) -> None:
        self.told += [f"{each} {why}" for each in sessions]


ALLOWED, DENIED = Renewal(allowed=True, lasts=60.0), Renewal(allowed=False)
UNDECIDED = Renewal(allowed=True, undecided=True)


@pytest.mark.rule("X57", "N9")
@pytest.mark.parametrize(
    ("answers", "lasts"),
    [
        ((ALLOWED,), 60),
        ((None, None, ALLOWED), 60),
        ((UNDECIDED, None, ALLOWED), 60),
        ((None, UNDECIDED, None), 0),
        ((None, DENIED), None),
    ],
    ids=["at once", "the third time", "undecided, silent, allowed", "never", "denied the second time"],
)
async def test_a_round_of_renewals_has_three_tries(
    store: Store, answers: tuple[Renewal | None, ...], lasts: float | None
) -> None:
    grants, played = Grants(store), Authorization(*answers)
    await grants.begun(URI)
    await grants.changed(opened=FIRST)
    played_both: Any = played
    renewals = GrantRenewals(grants, played_both, played_both, SubscriptionsSettings(), log=structlog.get_logger())
    await grants.later(31)
    assert await renewals.renew_due() == 1
    assert played.left == []
    assert played.told == [KEY if lasts is not None else f"{KEY} retired"]
    if lasts is None:
        assert await grants.session() is None
    else:
        assert (await grants.now()).lasts == pytest.approx(lasts, abs=10)


@pytest.mark.rule("X59")
async def test_a_stream_that_opens_while_a_change_is_marked_reads_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    grants, write = Grants(store), store.write
    await grants.begun(URI)

    @asynccontextmanager
    async def write_once_a_stream_has_opened(_: Store) -> AsyncIterator[AsyncConnection]:
        monkeypatch.undo()
        await grants.changed(opened=FIRST)
        async with write() as connection:
            yield connection

    monkeypatch.setattr(Store, "write", write_once_a_stream_has_opened)
    assert await grants.heard() == [KEY]
    assert (await grants.now()).dirty > 0


@pytest.mark.rule("X59")
async def test_a_change_without_a_stream_is_marked_once_and_cleared_by_who_wrote_it(store: Store) -> None:
    grants = Grants(store)
    await grants.begun(URI, OTHER)
    for pool in ("shop", "shop", OPERATOR_TOKEN):
        assert await grants.heard(pool=pool) == []
    assert (await grants.now()).dirty == 1
    assert (await grants.now(OTHER)).dirty == 0
    await grants.heard(OTHER, pool="forge")  # another pool speaks for none of this one's
    assert (await grants.now(OTHER)).dirty == 0
    await grants.changed(opened=FIRST)
    await grants.changed(by=SECOND, written={URI: 1})  # a stream that the session does not have
    assert (await grants.now()).dirty == 1
    await grants.changed(by=FIRST, written={URI: 2})  # another change than that which is marked
    assert (await grants.now()).dirty == 1
    await grants.changed(by=FIRST, written={URI: 1})
    assert (await grants.now()).dirty == 0
    await grants.changed(closed=FIRST, dirty=(URI,))
    assert (await grants.now()).dirty == 2


@pytest.mark.rule("X59")
async def test_a_hint_is_for_the_stream_that_was_there_when_it_came(store: Store) -> None:
    grants = Grants(store)
    await grants.begun(URI)
    await grants.changed(opened=FIRST)
    assert await grants.heard() == []
    assert (await grants.now()).dirty == 0
    assert await grants.heard(ago=60) == [KEY], "it came before the stream, which must read it"
    assert (await grants.now()).dirty == 1
    await grants.changed(by=FIRST, written={URI: 1})
    await grants.changed(closed=FIRST)
    await grants.heard(ago=60)
    assert (await grants.now()).dirty == 0, "the stream heard it"
    await grants.heard()
    assert (await grants.now()).dirty == 2


@pytest.mark.rule("X59")
async def test_a_gap_marks_every_uri_once(store: Store) -> None:
    grants = Grants(store)
    await grants.begun(URI, OTHER)
    await grants.changed(opened=FIRST)
    for _ in range(2):
        lost = await grants.changed(lost=FIRST)
        assert lost.session is not None
        assert lost.session.streams == ()
        assert [each.dirty for each in lost.session.grants] == [1, 1]
    await grants.changed(opened=FIRST)
    await grants.changed(by=FIRST, written={URI: 1, OTHER: 1})
    await grants.changed(opened=SECOND)
    assert await grants.drop_streams(["f" * 16]) == [KEY]
    assert await grants.drop_streams(["f" * 16]) == []
    session = await grants.session()
    assert session is not None
    assert session.streams == (FIRST,)
    assert [each.dirty for each in session.grants] == [2, 2]


@pytest.mark.rule("X59")
async def test_hints_that_may_be_lost_mark_every_uri_of_sessions_without_a_stream_once(store: Store) -> None:
    grants = Grants(store)
    await grants.begun(URI, OTHER)
    for _ in range(2):
        await grants.note_gap()
        assert [(await grants.now(uri)).dirty for uri in (URI, OTHER)] == [1, 1]
    await grants.changed(opened=FIRST)
    await grants.changed(by=FIRST, written={URI: 1, OTHER: 1})
    await grants.note_gap()  # a stream's edge has its own way to catch up
    assert [(await grants.now(uri)).dirty for uri in (URI, OTHER)] == [0, 0]


@pytest.mark.rule("X59")
async def test_a_told_list_is_told_again_only_once_the_client_has_listed(store: Store) -> None:
    grants = Grants(store)
    first, second = "1" * 64, "2" * 64
    begin = BeginSession(session=KEY, owner=ANN, revision="2025-11-25", lists={"tools": first, "prompts": first})
    await grants.sessions.begin(begin)

    async def known(**lists: str) -> str:
        changed = await grants.changed(lists=lists)
        assert changed.session is not None
        assert changed.session.lists is not None
        assert changed.session.lists["prompts"] == first
        return changed.session.lists["tools"]

    assert await known(tools=second + "00") == second + "00"
    assert await known(tools=second) == second
    assert await known(tools=second + "00") == second, "the client has listed since it was told"
