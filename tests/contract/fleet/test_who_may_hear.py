"""A resource's own handler decides who hears of it: those whom it lets read, for as long as it does."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcpfleet.edge.streams import uri_permits
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.accounts_app import ANN, ANNS, BOB, BOBS, Bank, account_of, fleet
from tests.contract.fleet.listener import ACK, UPDATED, Listener, listening
from tests.contract.fleet.visitor import Visitors
from tests.kit.waiting import pause, until

SOON = {"MCPFLEET_PERMISSION_LASTS": "1.5"}
"""Decisions hold that long, and so do the streams' own permissions, which a busy machine must renew in half of it."""
IMPATIENT = {"MCPFLEET_READ_CHECKED_WITHIN": "0.3"}


def honoured(stream: Listener) -> Any:
    """The URIs that a stream's acknowledgment names."""
    return stream.messages[0]["params"]["notifications"].get("resourceSubscriptions")


@pytest.mark.rule("S21")
async def test_a_stream_is_told_of_what_its_caller_may_read_and_of_nothing_else() -> None:
    """M58: the acknowledgment names that alone; at another edge than the worker's change, too."""
    bank = Bank()
    async with (
        fleet(bank, edges=2) as running,
        running.http(0) as one,
        running.http(1) as two,
        listening(one, "/mcp", token=ANN, resourceSubscriptions=[ANNS, BOBS]) as [anns],
        listening(two, "/mcp", token=BOB, resourceSubscriptions=[ANNS, BOBS]) as [bobs],
    ):
        assert (honoured(anns), honoured(bobs)) == ([ANNS], [BOBS])
        for uri in (ANNS, BOBS, ANNS):
            bank.app.publish(uri)
            await anyio.lowlevel.checkpoint()
        await until(lambda: ANNS in anns.uris() and BOBS in bobs.uris())
        assert set(anns.uris()) == {ANNS}
        assert set(bobs.uris()) == {BOBS}


@pytest.mark.rule("S21")
@pytest.mark.parametrize("how", ["found", "none", "said", "coded"])
async def test_however_a_handler_refuses_it_looks_like_what_it_does_not_have(how: str) -> None:
    """T12: a stream of nothing but what is refused ends at once, as one that is supported nowhere (D6)."""
    bank = Bank()
    uri = f"refused://{how}"
    async with fleet(bank) as running, running.http() as http:
        stream = Listener()
        await stream.run(http, "/mcp", {"resourceSubscriptions": [uri, account_of("nobody")]}, ANN)
        assert stream.kinds() == [ACK, "the end"]
        assert honoured(stream) is None
        assert bank.reads[None, how] == 1


@pytest.mark.rule("S21")
async def test_many_streams_of_a_caller_are_one_reading_of_each_uri() -> None:
    """While a decision holds, new streams and changes ask nobody; another caller's decision is its own."""
    bank = Bank()
    async with fleet(bank) as running, running.http() as http:
        async with listening(http, "/mcp", 200, token=ANN, resourceSubscriptions=[ANNS, BOBS]) as streams:
            bank.app.publish(ANNS)
            await until(lambda: all(stream.uris() == [ANNS] for stream in streams))
        async with (
            listening(http, "/mcp", 9, token=ANN, resourceSubscriptions=[ANNS]),
            listening(http, "/mcp", 9, token=BOB, resourceSubscriptions=[BOBS, ANNS]),
        ):
            names = [("ann", "ann"), ("ann", "bob"), ("bob", "bob"), ("bob", "ann")]
            assert bank.reads == dict.fromkeys(names, 1)


@pytest.mark.rule("S22")
async def test_what_a_handler_refuses_later_is_told_no_more_until_it_permits_it_again() -> None:
    """Each is found by the next reading; a change that was missed meanwhile is told as one."""
    bank = Bank()
    async with (
        fleet(bank, SOON) as running,
        running.http() as http,
        listening(http, "/mcp", token=ANN, resourceSubscriptions=[ANNS, "public://1"]) as [stream],
    ):
        bank.readers.clear()
        before = bank.reads["ann", "ann"]
        await until(lambda: bank.reads["ann", "ann"] >= before + 2)
        bank.app.publish(ANNS)
        bank.app.publish("public://1")
        await until(stream.uris)
        assert stream.uris() == ["public://1"]
        bank.readers.add(("ann", "ann"))
        await until(lambda: len(stream.uris()) == 2)
        assert stream.uris() == ["public://1", ANNS]
        bank.app.publish(ANNS)
        await until(lambda: len(stream.uris()) == 3)
        assert stream.messages[-1]["params"]["uri"] == ANNS


@pytest.mark.rule("S22")
async def test_a_change_during_the_first_reading_is_neither_lost_nor_leaked() -> None:
    bank = Bank()
    bank.held |= {"ann", "bob"}
    stream = Listener()
    async with fleet(bank) as running, running.http() as http, anyio.create_task_group() as tasks:
        tasks.start_soon(stream.run, http, "/mcp", {"resourceSubscriptions": [ANNS, BOBS, "public://1"]}, ANN)
        await until(lambda: bank.running == 2)
        async with listening(http, "/mcp", token=BOB, resourceSubscriptions=["public://1"]) as [other]:
            for uri in (BOBS, ANNS, "public://1"):
                bank.app.publish(uri)
            await until(other.uris)
        assert stream.messages == []
        bank.held.clear()
        await until(lambda: len(stream.messages) == 3)
        assert honoured(stream) == [ANNS, "public://1"]
        assert sorted(stream.uris()) == [ANNS, "public://1"]
        tasks.cancel_scope.cancel()


@pytest.mark.rule("S22")
async def test_a_handler_that_hangs_delays_a_stream_and_keeps_its_uri_silent() -> None:
    """Silence delays: once the handler says yes, what has changed is told. A handler that fails is silence, too."""
    bank = Bank()
    bank.held |= {"ann", "bob"}
    uris = [ANNS, BOBS, "refused://failed", "public://1"]
    async with (
        fleet(bank, IMPATIENT) as running,
        running.http() as http,
        listening(http, "/mcp", token=ANN, resourceSubscriptions=uris) as [stream],
    ):
        assert honoured(stream) == uris, "not refused"
        await until(lambda: bank.cancelled)
        for uri in uris:
            bank.app.publish(uri)
        await until(lambda: stream.uris() == ["public://1"])
        bank.held.clear()
        await until(lambda: stream.uris() == ["public://1", ANNS])
        bank.app.publish(BOBS)
        bank.app.publish("public://1")
        await until(lambda: len(stream.uris()) == 3)
        assert BOBS not in stream.uris(), "a refusal drops it"
        assert running.lines("read check not answered"), "an operator can find out"


@pytest.mark.rule("S22")
async def test_a_client_that_leaves_during_the_first_reading_frees_its_place() -> None:
    bank = Bank()
    bank.held.add("ann")
    stream = Listener()
    async with (
        fleet(bank, {"MCPFLEET_MAX_STREAMS": "1", "MCPFLEET_READ_CHECKED_WITHIN": "30"}) as running,
        running.http() as http,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.run, http, "/mcp", {"resourceSubscriptions": [ANNS]}, ANN)
            await until(bank.began.is_set)
            tasks.cancel_scope.cancel()
        with anyio.fail_after(10):
            other = Listener()
            while other.status != 200:
                await other.run(http, "/mcp", {"resourceSubscriptions": ["refused://none"]}, BOB)
        bank.held.clear()


@pytest.mark.rule("S22")
async def test_a_worker_that_dies_during_readings_delays_what_its_handler_permits() -> None:
    bank = Bank()
    bank.held.add("ann")
    stream = Listener()
    async with (
        fleet(bank, {"MCPFLEET_LOST_AFTER": "0.5", "MCPFLEET_ALIVE_INTERVAL": "0.1"}) as running,
        running.http() as http,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(stream.run, http, "/mcp", {"resourceSubscriptions": [ANNS, BOBS]}, ANN)
        await until(bank.began.is_set)
        await running.workers[0].kill()
        bank.held.clear()
        await running.add_worker()
        await until(lambda: stream.messages)
        assert ANNS in honoured(stream)
        bank.app.publish(ANNS)
        await until(lambda: stream.uris() == [ANNS])
        tasks.cancel_scope.cancel()


@pytest.mark.rule("S22")
async def test_a_stream_of_256_uris_takes_few_of_a_pools_slots_at_once() -> None:
    """Invariant 7: readings are bounded for each pool, and for each caller of it."""
    bank = Bank()
    uris = [f"public://{number}" for number in range(256)]
    async with (
        fleet(bank) as running,
        running.http() as http,
        listening(http, "/mcp", token=ANN, resourceSubscriptions=uris) as [stream],
    ):
        assert honoured(stream) == uris
        assert bank.reads == {(None, str(number)): 1 for number in range(256)}
        assert 1 < bank.most <= 8


@pytest.mark.rule("S22")
async def test_readings_count_against_the_rate_of_the_callers_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listen is no amplifier: what is beyond the rate is read later, and the stream begins nonetheless."""
    monkeypatch.setattr(uri_permits, "_RETRY", 600.0)  # later than this test
    bank = Bank()
    uris = [f"public://{number}" for number in range(20)]
    async with (
        fleet(bank, IMPATIENT | {"MCPFLEET_RATE_REQUESTS": "5/3600"}) as running,
        running.http() as http,
        listening(http, "/mcp", token=ANN, resourceSubscriptions=uris) as [stream],
    ):
        assert honoured(stream) == uris
        assert bank.reads.total() == 5


@pytest.mark.rule("S22")
async def test_callers_without_names_are_one_caller() -> None:
    bank = Bank()
    async with LocalFleet(bank.app) as running, running.http() as http:
        async with listening(http, "/mcp", 30, resourceSubscriptions=["public://1", ANNS]) as streams:
            assert {tuple(honoured(stream)) for stream in streams} == {("public://1",)}
            bank.app.publish("public://1")
            await until(lambda: all(stream.uris() == ["public://1"] for stream in streams))
        assert bank.reads == {(None, "1"): 1, (None, "ann"): 1}


@pytest.mark.rule("S22")
async def test_what_another_definition_serves_is_read_again() -> None:
    """A rollout may let others read: nothing is told by what the former definition decided."""
    bank = Bank()
    async with (
        fleet(bank) as running,
        running.http() as http,
        listening(http, "/mcp", token=ANN, resourceSubscriptions=[ANNS, "public://1"]) as [stream],
        listening(http, "/mcp", token=ANN, resourcesListChanged=True) as [lists],
    ):
        bank.app.remove("template", "acct://accounts/{name}")
        bank.app.resource("acct://accounts/{name}", description="Another.")(bank.account)
        bank.readers.clear()
        await until(lambda: len(lists.messages) > 1)
        bank.app.publish(ANNS)
        await until(lambda: bank.reads["ann", "ann"] == 2)
        bank.app.publish("public://1")
        await until(stream.uris)
        assert stream.uris() == ["public://1"]


async def test_an_application_is_told_of_no_watched_uri_that_its_handler_refuses() -> None:
    bank = Bank()
    told: list[frozenset[str]] = []
    bank.app.watched(told.append)
    async with (
        fleet(bank) as running,
        running.http() as http,
        listening(http, "/mcp", token=BOB, resourceSubscriptions=[ANNS, BOBS]),
    ):
        await until(lambda: told)
        assert told == [{BOBS}]


# -- sessions of 2025 -------------------------------------------------------------------------------------------------


@pytest.mark.rule("L23")
async def test_subscribing_to_an_unreadable_uri_looks_like_an_unknown_one() -> None:
    """L11: the error is the one that reading it gives, but for the URI in it."""
    bank = Bank()
    async with fleet(bank, edges=2) as running, Visitors(running) as visitors:
        visitor = await visitors.one(token=BOB)
        errors = []
        for uri in (ANNS, account_of("nobody"), "none://1", "refused://said"):
            error = (await visitor.ask("resources/subscribe", {"uri": uri}, 1))["error"]
            assert error.pop("data") == {"uri": uri}
            errors.append(error)
        read = (await visitor.ask("resources/read", {"uri": "none://1"}))["error"]
        del read["data"]
        assert errors == [read] * 4
        assert (await visitor.ask("resources/subscribe", {"uri": BOBS}, 1))["result"] == {}
        async with visitor.watching(0) as watching:
            for uri in (ANNS, BOBS):
                bank.app.publish(uri)
            await until(lambda: watching.uris() == [BOBS])


@pytest.mark.rule("L23")
async def test_a_session_hears_no_more_of_what_its_caller_may_not_read_any_more() -> None:
    """At whichever edge its stream is, and from a stream's beginning."""
    bank = Bank()
    bank.readers.add(("bob", "ann"))
    async with fleet(bank, SOON, edges=3) as running, Visitors(running) as visitors:
        visitor = await visitors.one(token=BOB)
        for uri in (ANNS, BOBS):
            assert (await visitor.ask("resources/subscribe", {"uri": uri}, 1))["result"] == {}
        async with visitor.watching(0) as watching:
            for uri in (ANNS, BOBS):
                bank.app.publish(uri)
            await until(lambda: sorted(watching.uris()) == [ANNS, BOBS])
            bank.readers.discard(("bob", "ann"))
            before = bank.reads["bob", "ann"]
            await until(lambda: bank.reads["bob", "ann"] >= before + 2)
            bank.app.publish(ANNS)
            bank.app.publish(BOBS)
            await until(lambda: len(watching.uris()) == 3)
            assert watching.uris()[2] == BOBS
        before = bank.reads["bob", "ann"]
        async with visitor.watching(2) as watching:
            bank.app.publish(BOBS)
            await until(lambda: watching.uris() == [BOBS])
            assert bank.reads["bob", "ann"] > before


@pytest.mark.rule("L24")
async def test_a_subscription_that_nobody_can_decide_is_refused_for_now() -> None:
    """Its handler ran, or runs: the refusal says what is certain, and no more."""
    bank = Bank()
    bank.held.add("ann")
    async with fleet(bank, IMPATIENT) as running, Visitors(running) as visitors:
        visitor = await visitors.one(token=ANN)
        message = {"jsonrpc": "2.0", "id": 7, "method": "resources/subscribe", "params": {"uri": ANNS}}
        refused = await visitor.send(message)
        assert refused.status_code == 504
        assert refused.json()["error"]["message"].endswith("nothing was changed: ask again")
        bank.held.clear()
        with anyio.fail_after(10):
            while (await visitor.send(message)).status_code != 200:
                await pause()
        async with visitor.watching() as watching:
            bank.app.publish(ANNS)
            await until(lambda: watching.kinds() == [UPDATED])
